"""Warm start: a parent process that has imported torch forks the processes of training pods, instead of executing Python again.

`warm_parents.py` is the node's side. `parent.py` is the program of a parent; it and what it imports use only the standard library,
so that the programs that it runs find no other modules loaded than torch, transformers, peft and what these import.
Wherever a forked process could differ from an executed one, the command is executed as without warm start.
"""
