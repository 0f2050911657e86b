"""The supervisor of a container's process, what starts it, and what runs commands beside it.

`supervise.py`, `spawner.py` and `exec_child.py` run as programs: they import only the standard library and small modules.
"""
