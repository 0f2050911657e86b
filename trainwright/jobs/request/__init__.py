"""The request of a training step: its settings, their types, and what is wrong with them."""
