"""The one collab world of this process: who is where, its process groups, its hub client, and its state."""
