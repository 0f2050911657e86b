"""Memory limits of containers: control groups where this user may use them, a watchdog elsewhere."""
