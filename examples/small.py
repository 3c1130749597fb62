"""Shared by the small examples: how long they train, and how they report results."""

import hashlib
import os

STEPS = int(os.environ.get("STEPS", "200"))


def fell(losses):
    """The mean of the first ten losses and of the last ten."""
    return f"{sum(losses[:10]) / 10:.3f} -> {sum(losses[-10:]) / 10:.3f}"


def digest(model, trained=True):
    """Digest of the trained (or else the frozen) parameters: sites that print the same digest have the same values."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        if parameter.requires_grad == trained:
            found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]
