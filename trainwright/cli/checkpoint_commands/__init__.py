"""Commands for checkpoints and their exports."""
