"""Credentials of a training step: Secrets that its pods refer to, and literal ones, which are refused."""
