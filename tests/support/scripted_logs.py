"""Logs that a test writes: what each pod prints, and how connections to it end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from trainwright.api.errors import BadRequest, ServiceUnavailable
from trainwright.api.kinds import TRAINJOB
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster


def stamp(number: int) -> str:
    """Three lines in a second."""
    return datetime.fromtimestamp(number // 3, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{number % 3:09}Z"


class Log:
    """What a container prints: numbered lines with times, and how connections to it end."""

    def __init__(self, *lines: str, end: str = "\n", cuts: tuple[int, ...] = (), before: Log | None = None):
        self.entries = [(stamp(number), line) for number, line in enumerate(lines)]
        self.end, self.cuts, self.before, self.until = end, list(cuts), before, threading.Event()
        self.until.set()

    def opened(self, options: dict[str, Any]) -> Iterator[bytes]:
        since = options.get("since_time") or ""
        kept = [(when, line) for when, line in self.entries if when[:19] >= since[:19]]
        if options.get("tail_lines") is not None:
            kept = kept[len(kept) - options["tail_lines"] :] if options["tail_lines"] else []
        whole = "\n".join(f"{when} {line}" for when, line in kept) + (self.end if kept else "")
        sent = whole.encode()
        if self.cuts:
            cut = self.cuts.pop(0)
            if cut >= 0:
                yield sent[:cut]
            raise ServiceUnavailable("the connection broke")
        yield from (sent[:7], sent[7:])
        if options.get("follow"):
            self.until.wait(10)


class WithLogs:
    """The cluster with logs of the test: of each pod by its index."""

    def __init__(self, cluster: EmbeddedCluster, *logs: Log | Exception):
        self._cluster, self._logs = cluster, logs
        self.lost = 0
        self.asked: list[dict[str, Any]] = []

    def get(self, kind: Any, *arguments: Any) -> Any:
        if kind == TRAINJOB and self.lost > 0:
            self.lost -= 1
            raise ServiceUnavailable("down")
        return self._cluster.get(kind, *arguments)

    def list(self, *arguments: Any, **more: Any) -> Any:
        return self._cluster.list(*arguments, **more)

    def watch(self, *arguments: Any, **more: Any) -> Any:
        return self._cluster.watch(*arguments, **more)

    def logs(self, name: str, _namespace: str, **options: Any) -> Iterator[bytes]:
        self.asked.append(options)
        log = self._logs[int(name.split("-node-0-")[1][0])]
        if isinstance(log, Exception):
            raise log
        if not options["previous"]:
            return log.opened(options)
        if log.before is None:
            raise BadRequest("previous terminated container not found")
        return log.before.opened(options)


class WithTexts(DelegatingCluster):
    """The cluster with texts, or errors, in place of logs: one for each index, or one for all pods."""

    def __init__(self, cluster: EmbeddedCluster, *logs: str | Exception):
        super().__init__(cluster)
        self._logs = logs

    def logs(self, name: str, namespace: str, **options: Any) -> Iterator[bytes]:
        log = self._logs[0] if len(self._logs) == 1 else self._logs[int(name.split("-node-0-")[1][0])]
        if isinstance(log, Exception):
            raise log
        yield log.encode()
