"""The one collab world of this process: its map of sites, its process groups, its hub client, and its state."""
