"""Runs that a person starts, by a command or on the page: whose they are, and their ids."""

from __future__ import annotations

import getpass
import secrets
import time

COMMAND_LINE = "cli"
"""The owner of these runs. The page has the same, so that `trainwright finetune --run-id` resumes a run of the page."""


def new_run_id() -> str:
    """Return the id of a new run: the user, the time, and what tells runs of one second apart."""
    return f"{_user()}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _user() -> str:
    """Return the user name, or a default for a user id without a name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return COMMAND_LINE
