"""What a training would cost, worked out before anything is rented: time, bytes and memory. Arithmetic without torch;
`presets` alone asks the knob table. `collab plan` is its command.
"""
