"""Admission: which kinds are admitted under which rules, and the one function that applies them.

The same table is printed as CustomResourceDefinitions for clusters that lack them.
"""
