"""Schemas of the API's kinds as Python values, and what is done with a schema: checking, defaulting, pruning, decoding."""
