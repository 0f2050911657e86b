"""The metrics of a training over its steps, from what it has left beside its checkpoints: for card, curve and manifest."""
