"""Limits of containers: control groups where this user may use them, a watchdog over memory elsewhere."""
