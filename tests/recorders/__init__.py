"""Recordings of real systems: programs that make them, clusters that replay them, and comparisons of the results."""
