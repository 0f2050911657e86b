"""The one-time link to the page of an embedded cluster, for `up`, `ui` and `finetune`.

The link is for the person at the terminal: where the output goes to a file or a log, only the address is printed, without the code.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainwright.controlplane.home import Home
from trainwright.text.terminal import printable


def home_of(kubeconfig: Path | None) -> Home | None:
    """Return the embedded cluster that a kubeconfig, else that of the environment, belongs to; None if it is another one's."""
    named = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG", "")
    if not named or os.pathsep in named:
        return None
    try:
        home = Home(Path(named).expanduser().absolute().parent)
        return home if home.database.exists() else None
    except (OSError, RuntimeError):  # a name that is too long, ~nobody: `connect` says so
        return None


def link_to(home: Home) -> str:
    """Return a new link to the page of a running embedded cluster, empty if there is none."""
    from trainwright.ui.links import make_code

    running = home.running()
    if running is None or not running.page:
        return ""
    try:
        return f"{running.page}#code={make_code(home.page_key.read_bytes())}"
    except OSError:
        return ""


def page_line(home: Home, *, is_terminal: bool) -> str:
    """Return a line that leads to the page; empty if there is none."""
    link = link_to(home)
    if not link:
        return ""
    if is_terminal:
        return f"page: {printable(link)} (once, within an hour; `trainwright ui` prints another)"
    return f"page: {printable(link.partition('#')[0])} (`trainwright ui` opens it)"


def write_redirect(path: Path, link: str) -> None:
    """Write a page that leads to a link: a browser is started with its path, so that the code is in no list of processes.

    Raises OSError.
    """
    from trainwright.ui.private_file import write_private

    text = (
        f'<!doctype html><meta charset="utf-8"><title>Trainwright</title><meta http-equiv="refresh" content="0;url={link}">'
        f'<a href="{link}">Open the page</a>'
    )
    write_private(path, text.encode())
