"""The page of a cluster: its one-time link, for `up`, `ui` and `finetune`, and its address, for links to jobs.

A one-time link is for the person at the terminal: where the output goes to a file or a log, only the address is printed, without the
code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.embedded.home import Home
from trainwright.text.foreign_texts import printable


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


def page_address(kubeconfig: Path | None, host: Callable[[], str]) -> str:
    """Return where the page of a cluster is served on this machine, without a code; empty if it is not.

    `host` returns the address of the API server, by which a page of `trainwright ui` is found. Raises what `host` raises.
    """
    home = home_of(kubeconfig)
    if home is not None:
        running = home.running()
        return running.page if running is not None else ""
    folder = _note_of("").parent
    return _read_note(_note_of(host())) if folder.is_dir() and any(folder.glob(f"{_NOTE}*")) else ""


@contextmanager
def announced(host: str, url: str) -> Iterator[None]:
    """Note the address of a page that this process serves, until the block ends, for links to jobs of the cluster at `host`."""
    from trainwright.ui.private_file import write_private

    note = _note_of(host)
    try:
        write_private(note, f"{os.getpid()} {url}".encode())
    except OSError:  # the page works without it
        yield
        return
    try:
        yield
    finally:
        if _read_note(note) == url:  # unless another process serves the page by now
            note.unlink(missing_ok=True)


_NOTE = "served-"


def _note_of(host: str) -> Path:
    return Home.chosen().path / "page" / f"{_NOTE}{hashlib.sha256(host.encode()).hexdigest()[:16]}"


def _read_note(note: Path) -> str:
    """Return the address in a note; empty without one, or if the process that has written it is gone."""
    try:
        pid, url = note.read_text("utf-8").split(" ", 1)
        os.kill(int(pid), 0)
    except (OSError, ValueError):
        return ""
    return url


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
    """Return a line that leads to the page, or says why it cannot be shown; empty if there is none."""
    from trainwright.ui.static_files import MISSING, has_vendored_files

    link = link_to(home)
    if not link:
        return ""
    if not has_vendored_files():
        return f"warning: {MISSING}"
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
