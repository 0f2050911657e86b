"""Builtin trainers: settings that become the command of a training program."""
