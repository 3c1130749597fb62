"""What a training would cost, worked out before anything is rented: time, bytes and memory.

The core has the knobs, the encoded sizes and the period of COLLAB_SYNC_EVERY=auto. The command is `collab plan`.
"""
