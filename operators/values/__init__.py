"""What operators are given: task, run, settings, rendered values, connections, places, credentials; how bad ones are rejected."""
