"""The node: runs pods as process groups on this machine, reports their states, and survives its own death."""
