"""Texts: read from files and options, written as YAML, and those of others made fit for terminals, Markdown and messages."""
