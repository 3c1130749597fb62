"""What a training would cost, worked out before anything is rented: time, bytes and memory.

The knobs, the codecs' sizes and the period of COLLAB_SYNC_EVERY=auto are the core's. `collab plan` is its command.
"""
