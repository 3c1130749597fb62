"""What the small examples share: how long they train, and how they say what came of it."""

import hashlib
import os

STEPS = int(os.environ.get("STEPS", "200"))


def fell(losses):
    """The mean of the first ten and of the last ten."""
    return f"{sum(losses[:10]) / 10:.3f} -> {sum(losses[-10:]) / 10:.3f}"


def digest(model, trained=True):
    """Of the parameters that are trained, or of those that are frozen: sites that print the same have the same."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        if parameter.requires_grad == trained:
            found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]
