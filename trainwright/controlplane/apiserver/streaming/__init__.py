"""Long-lived responses and sessions: watches, followed logs, exec, attach and port-forward."""
