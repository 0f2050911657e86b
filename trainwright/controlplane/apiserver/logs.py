"""Where the server finds a container's log, and what it answers when there is no telling which container, or nothing yet.

The logs themselves belong to the node; it hands in something with the shape of `Logs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.failures import not_found
from trainwright.controlplane.apiserver.list_options import flag, whole


class Logs(Protocol):
    """The logs of a node's containers."""

    def open(
        self,
        pod: Obj,
        container: str | None,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
    ) -> Iterator[bytes]:
        """A container's log in chunks, ending with the container when it is followed.

        While it waits for more it yields `b""` about once a second, so that a reader who has gone is noticed.
        Raises NotFound, or BadRequest when the container has not started.
        """
        ...


class NoLogs:
    """For a server without a node: there is nobody to ask for a log."""

    def open(
        self,
        pod: Obj,
        container: str | None,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
    ) -> Iterator[bytes]:
        raise not_found(POD, str((pod.get("spec") or {}).get("nodeName") or ""))


@dataclass(frozen=True)
class LogOptions:
    """The parameters of `GET pods/NAME/log`."""

    container: str | None = None
    follow: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    previous: bool = False

    @classmethod
    def parse(cls, pod_name: str, query: Mapping[str, str]) -> LogOptions:
        """Raises BadRequest for text that is no number, Invalid for numbers that make no sense."""
        options = cls(
            container=query.get("container") or None,
            follow=flag(query.get("follow")),
            tail_lines=whole(query.get("tailLines")),
            since_seconds=whole(query.get("sinceSeconds")),
            limit_bytes=whole(query.get("limitBytes")),
            timestamps=flag(query.get("timestamps")),
            previous=flag(query.get("previous")),
        )
        problems = []
        if options.tail_lines is not None and options.tail_lines < 0:
            problems.append(Problem("tailLines", f"Invalid value: {options.tail_lines}: must be greater than or equal to 0"))
        for name, value in (("sinceSeconds", options.since_seconds), ("limitBytes", options.limit_bytes)):
            if value is not None and value < 1:
                problems.append(Problem(name, f"Invalid value: {value}: must be greater than 0"))
        if problems:
            raise Invalid.of("PodLogOptions", pod_name, problems)
        return options


def container_of(pod: Obj, wanted: str | None) -> str:
    """The container that a request means: the one it names, or the only one. Raises BadRequest."""
    spec = pod.get("spec") or {}
    main = [str(container["name"]) for container in spec.get("containers") or []]
    every = [str(container["name"]) for container in spec.get("initContainers") or []] + main
    if wanted:
        if wanted not in every:
            raise BadRequest(f"container {wanted} is not valid for pod {name_of(pod)}")
        return wanted
    if len(every) == 1:
        return every[0]
    if len(main) == 1:
        return main[0]
    raise BadRequest(f"a container name must be specified for pod {name_of(pod)}, choose one of: [{' '.join(every)}]")


def open_log(logs: Logs, pod: Obj, options: LogOptions) -> Iterator[bytes] | None:
    """The log that a request means; None while the pod has no node, and so no log that could ever come of itself.

    Raises what `container_of` and `Logs.open` raise.
    """
    container = container_of(pod, options.container)
    if not (pod.get("spec") or {}).get("nodeName"):
        return None
    return logs.open(
        pod,
        container,
        follow=options.follow,
        tail_lines=options.tail_lines,
        since_seconds=options.since_seconds,
        limit_bytes=options.limit_bytes,
        timestamps=options.timestamps,
        previous=options.previous,
    )
