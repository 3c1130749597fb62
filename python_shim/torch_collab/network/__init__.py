"""How this process finds and trusts others: addresses, the swarm's key, signed stores, the choice of transport."""
