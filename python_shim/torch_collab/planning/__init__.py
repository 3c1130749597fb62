"""What a training would cost, worked out before anything is rented: time, bytes and memory. Pure arithmetic, without
torch and without the native module; `collab plan` is its command.
"""
