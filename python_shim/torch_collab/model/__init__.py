"""The tensors that sites average, and what one generation's training has shown so far; knows no world."""
