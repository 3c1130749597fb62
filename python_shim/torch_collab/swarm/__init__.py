"""This site in its swarm: the coordinator, the session of a generation, its record, the optimizer's state."""
