"""How this process finds and trusts others: addresses, the swarm's token, signed stores, the choice of transport."""
