"""Merged models: an adapter added to the weights of its base model, as an export of its own, for those who serve one model."""
