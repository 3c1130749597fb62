"""Registers the backend's name, makes the backend of each process group, and ends the run."""
