"""The tensors that sites average, and what one generation's training has shown so far. Knows nothing of the world."""
