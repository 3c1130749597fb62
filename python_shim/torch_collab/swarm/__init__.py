"""This site in its swarm: the coordinator, a generation's session, its record, the optimizer's state."""
