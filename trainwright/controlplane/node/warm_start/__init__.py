"""Warm start: a parent process that has imported torch forks the processes of training pods, instead of executing Python again.

`warm_parent.py` is the node's side, `parent.py` the program of the parent, and `programs.py` what its children do: in every doubt,
they execute their command."""
