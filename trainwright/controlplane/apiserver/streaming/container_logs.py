"""The pods/log subresource: parses its options, selects the container and opens its log.

The node owns the logs and implements the `Logs` protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, get_args

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.wire.api_errors import not_found_error
from trainwright.controlplane.apiserver.wire.requests import parse_boolean, parse_integer

Stream = Literal["All", "Stdout", "Stderr"]


class Logs(Protocol):
    """The logs of a node's containers."""

    def open(
        self,
        pod: Obj,
        container: str | None,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        stream: Stream = "All",
    ) -> Iterator[bytes]:
        """Iterate over a container's log in chunks; with `follow` until the container ends.

        While waiting it yields `b""` about once a second, so that the caller can detect a disconnected client.
        Raises NotFound, or BadRequest if the container has not started.
        """
        ...


class NoLogs:
    """The logs of a server without a node: always not found."""

    def open(
        self,
        pod: Obj,
        container: str | None,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        stream: Stream = "All",
    ) -> Iterator[bytes]:
        raise not_found_error(POD, str((pod.get("spec") or {}).get("nodeName") or ""))


@dataclass(frozen=True)
class LogOptions:
    """The parameters of `GET pods/NAME/log`."""

    container: str | None = None
    follow: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: datetime | None = None
    limit_bytes: int | None = None
    timestamps: bool = False
    previous: bool = False
    stream: Stream = "All"

    @classmethod
    def parse(cls, pod_name: str, query: Mapping[str, str]) -> LogOptions:
        """Parse query parameters. Raises BadRequest for malformed numbers and times, Invalid for unsupported values.

        `insecureSkipTLSVerifyBackend` is accepted and ignored: there is no TLS connection to the node.
        """
        parse_boolean(query.get("insecureSkipTLSVerifyBackend"))
        options = cls(
            container=query.get("container") or None,
            follow=parse_boolean(query.get("follow")),
            tail_lines=parse_integer(query.get("tailLines")),
            since_seconds=parse_integer(query.get("sinceSeconds")),
            since_time=_time(query.get("sinceTime")),
            limit_bytes=parse_integer(query.get("limitBytes")),
            timestamps=parse_boolean(query.get("timestamps")),
            previous=parse_boolean(query.get("previous")),
            stream=query.get("stream") or "All",  # type: ignore[arg-type]
        )
        problems = []
        if options.tail_lines is not None and options.tail_lines < 0:
            problems.append(Problem("tailLines", f"Invalid value: {options.tail_lines}: must be greater than or equal to 0"))
        for name, value in (("sinceSeconds", options.since_seconds), ("limitBytes", options.limit_bytes)):
            if value is not None and value < 1:
                problems.append(Problem(name, f"Invalid value: {value}: must be greater than 0"))
        if options.since_seconds is not None and options.since_time is not None:
            problems.append(_forbidden("at most one of `sinceTime` or `sinceSeconds` may be specified"))
        if options.stream not in get_args(Stream):
            supported = ", ".join(f'"{stream}"' for stream in get_args(Stream))
            text = f'Unsupported value: "{options.stream}": supported values: {supported}'
            problems.append(Problem("stream", text, "FieldValueNotSupported"))
        elif options.stream != "All" and options.tail_lines is not None:
            problems.append(_forbidden("`tailLines` and specific `stream` are mutually exclusive for now"))
        if problems:
            raise Invalid.of("PodLogOptions", pod_name, problems)
        return options

    def since(self, now: datetime) -> datetime | None:
        """The time of the first requested line."""
        return self.since_time if self.since_seconds is None else now - timedelta(seconds=self.since_seconds)


def _forbidden(why: str) -> Problem:
    """A problem of the options as a whole, for which kube-apiserver reports an empty field."""
    return Problem("", f"Forbidden: {why}", "FieldValueForbidden")


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadRequest(f'sinceTime: parsing time "{text}" as "2006-01-02T15:04:05Z07:00": not such a time')
    return moment


def container_of(pod: Obj, wanted: str | None) -> str:
    """The requested container; defaults to the only one. Raises BadRequest."""
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


def open_log(logs: Logs, pod: Obj, options: LogOptions, now: datetime | None = None) -> Iterator[bytes] | None:
    """Open the requested log; None if the pod is not assigned to a node yet.

    Raises the errors of `container_of` and `Logs.open`.
    """
    container = container_of(pod, options.container)
    if not (pod.get("spec") or {}).get("nodeName"):
        return None
    return logs.open(
        pod,
        container,
        follow=options.follow,
        tail_lines=options.tail_lines,
        since=options.since(now or datetime.now(UTC)),
        limit_bytes=options.limit_bytes,
        timestamps=options.timestamps,
        previous=options.previous,
        stream=options.stream,
    )
