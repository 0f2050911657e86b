"""Policies of frameworks that Trainer does not know: plugins of the group `trainwright.plugins`, chosen by the runtime's label."""
