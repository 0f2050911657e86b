"""Notices that a credential plugin of a kubeconfig failed: the official client only logs it, and sends anonymous requests.

What it logs may contain the plugin's output, and so a token: it is replaced by a sentence of our own.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainwright.text.one_line import one_line

_MODULES = ("kube_config", "exec_provider")
_EXIT = re.compile(r"exec: process returned (-?[0-9]+)")


class PluginWatch(logging.Filter):
    """Keeps the client's log of failed plugins to itself, for the thread that reads a kubeconfig."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self.reasons: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.module not in _MODULES or record.thread != self._thread:
            return True
        self.reasons.append(_reason(record.getMessage()))
        return False


@contextmanager
def plugin_watch() -> Iterator[PluginWatch]:
    """Watch for failures in a block that reads a kubeconfig, or renews its token."""
    watch, root = PluginWatch(), logging.getLogger()
    root.addFilter(watch)
    try:
        yield watch
    finally:
        root.removeFilter(watch)


def plugin_failure(user: dict[str, Any], configuration: Any, watch: PluginWatch) -> str | None:
    """Return why the user of a kubeconfig has no credentials although it has a plugin; None if it has some, or no plugin."""
    plugin = user.get("exec")
    if not isinstance(plugin, dict) or configuration.api_key or configuration.cert_file:
        return None
    reason = watch.reasons[0] if watch.reasons else "returned no credentials"
    return f"the credential plugin {one_line(plugin.get('command'))!r} {reason}"


def _reason(message: str) -> str:
    if found := _EXIT.match(message):
        return f"failed with exit code {found[1]}"
    if "No such file" in message:
        return "is not installed"
    if "Permission denied" in message:
        return "cannot be executed"
    return "returned no valid credentials"
