"""Schemas of the API's kinds as published, and what is done with a schema: checking, defaulting, pruning, decoding."""
