"""The node: runs pods as process groups on this machine, reports their status, and recovers them after a restart."""
