"""Where the server finds a container's log, and what it answers when there is no telling which container, or nothing yet.

The logs themselves belong to the node; it hands in something with the shape of `Logs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, get_args

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.kinds import POD
from trainwright.api.objects import Obj, name_of
from trainwright.controlplane.apiserver.wire.api_errors import not_found
from trainwright.controlplane.apiserver.wire.list_options import flag, whole

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
        since: datetime | None = None,
        limit_bytes: int | None = None,
        timestamps: bool = False,
        previous: bool = False,
        stream: Stream = "All",
    ) -> Iterator[bytes]:
        raise not_found(POD, str((pod.get("spec") or {}).get("nodeName") or ""))


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
        """Raises BadRequest for text that is no number or time, Invalid for values that make no sense.

        `insecureSkipTLSVerifyBackend` is taken and means nothing: there is no connection to a node that could be verified.
        """
        flag(query.get("insecureSkipTLSVerifyBackend"))
        options = cls(
            container=query.get("container") or None,
            follow=flag(query.get("follow")),
            tail_lines=whole(query.get("tailLines")),
            since_seconds=whole(query.get("sinceSeconds")),
            since_time=_time(query.get("sinceTime")),
            limit_bytes=whole(query.get("limitBytes")),
            timestamps=flag(query.get("timestamps")),
            previous=flag(query.get("previous")),
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
        """The time of the first line that is wanted."""
        return self.since_time if self.since_seconds is None else now - timedelta(seconds=self.since_seconds)


def _forbidden(why: str) -> Problem:
    """About the options as a whole, which kube-apiserver names by an empty field."""
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


def open_log(logs: Logs, pod: Obj, options: LogOptions, now: datetime | None = None) -> Iterator[bytes] | None:
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
        since=options.since(now or datetime.now(UTC)),
        limit_bytes=options.limit_bytes,
        timestamps=options.timestamps,
        previous=options.previous,
        stream=options.stream,
    )
