"""The interface through which all parts of Trainwright use a Kubernetes API, whatever implements it.

Objects are dicts. Errors are those of `trainwright.api.errors`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Required, TypedDict, Unpack

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.text.foreign_texts import one_line


@dataclass(frozen=True)
class Listing:
    """A consistent list: its items and the resource version to watch from."""

    items: list[Obj]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """`type` is ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark's object carries only its resource version."""

    type: str
    object: Obj

    @property
    def resource_version(self) -> str:
        return str(self.object.get("metadata", {}).get("resourceVersion", ""))


class Cluster(Protocol):
    """A Kubernetes API. `namespace` is None for cluster-scoped kinds and for lists over all namespaces."""

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        """Return one object. Raises NotFound."""
        ...

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        """Return all matching objects, from all pages."""
        ...

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        """Yield the changes after `resource_version` on one connection, until the server closes it.

        Raises Expired if that version is no longer available: list again.
        """
        ...

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        """Create an object; returns it as stored. Raises AlreadyExists, Invalid, Forbidden."""
        ...

    def update(self, obj: Obj) -> Obj:
        """Replace an object. Raises Conflict if its resource version is stale."""
        ...

    def update_status(self, obj: Obj) -> Obj:
        """Replace an object's status through the status subresource. Raises Conflict if its resource version is stale."""
        ...

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        """Patch an object; returns the result. Raises NotFound, Conflict, Invalid."""
        ...

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object. Raises NotFound, and Conflict if a precondition does not hold."""
        ...

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        """Yield a container's log in chunks. Raises NotFound, or BadRequest if the container has not started."""
        ...


# Options of the methods; implementations and wrappers take them as `**options: Unpack[...]`.

PatchType = Literal["merge", "json", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]
FieldValidation = Literal["Strict", "Warn", "Ignore"]


class ListOptions(TypedDict, total=False):
    """Label and field selectors in kubectl's text form; empty selects all."""

    label_selector: str
    field_selector: str


class WatchOptions(ListOptions, total=False):
    """`timeout_seconds` is how long the server keeps the connection open; defaults to 300."""

    resource_version: Required[str]
    timeout_seconds: int


class CreateOptions(TypedDict, total=False):
    """With `dry_run` the server only returns what it would store. `field_validation` is what it does with unknown and duplicate
    fields: reject the object, drop them with a warning (its default), or drop them. `on_warning` receives its warnings, one by one.
    """

    dry_run: bool
    field_validation: FieldValidation
    on_warning: OnWarning | None


class PatchOptions(TypedDict, total=False):
    """`patch_type` defaults to merge, `field_manager` to trainwright; `force` is for apply: takes over fields of other managers."""

    patch_type: PatchType
    subresource: str | None
    field_manager: str
    force: bool


class DeleteOptions(TypedDict, total=False):
    """`propagation` defaults to Background; `uid` and `resource_version` are preconditions."""

    propagation: Propagation
    uid: str | None
    resource_version: str | None
    grace_period_seconds: int | None


class LogOptions(TypedDict, total=False):
    """`since_time` is an RFC 3339 time, of which kubelets honour whole seconds; `timestamps` prefixes each line with its time and
    a space; `previous` reads the log before the last restart of the container. After `idle_seconds` without a line, a followed log
    may end, so that its reader can stop or follow it again.
    """

    container: str | None
    follow: bool
    tail_lines: int | None
    limit_bytes: int | None
    since_time: str
    timestamps: bool
    previous: bool
    idle_seconds: float


class DelegatingCluster:
    """Implements `Cluster` by delegating to `cluster`: the base of wrappers, which override only what they change."""

    def __init__(self, cluster: Cluster):
        self._cluster = cluster

    @property
    def host(self) -> str | None:
        """The address of the API server, by which a process caches what is the same for all its clients; None without one."""
        found: str | None = getattr(self._cluster, "host", None)
        return found

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self._cluster.get(kind, name, namespace)

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        return self._cluster.list(kind, namespace, **options)

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        return self._cluster.watch(kind, namespace, **options)

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        return self._cluster.create(obj, **options)

    def update(self, obj: Obj) -> Obj:
        return self._cluster.update(obj)

    def update_status(self, obj: Obj) -> Obj:
        return self._cluster.update_status(obj)

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        return self._cluster.patch(kind, name, patch, namespace, **options)

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        self._cluster.delete(kind, name, namespace, **options)

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        return self._cluster.logs(name, namespace, **options)


# Warnings of an API server are `Warning` headers (RFC 7234): deprecated fields, unknown fields, advice of webhooks.

OnWarning = Callable[[str], None]
_WARNING = re.compile(r'(?P<code>\d{3}) +\S+ +"(?P<text>(?:\\.|[^"\\])*)"')
_CODE = "299"
"""Other codes come from caches on the way."""
_ESCAPE = re.compile(r"\\(.)")


def report_warnings(headers: Any, on_warning: OnWarning | None) -> None:
    """Call `on_warning` for each warning in the headers of a response; `headers` is a multidict of urllib3, or None."""
    if on_warning is None or headers is None:
        return
    values = headers.getlist("Warning") if hasattr(headers, "getlist") else filter(None, [headers.get("Warning")])
    for text in parse_warnings(values):
        on_warning(text)


def parse_warnings(values: Iterable[str]) -> list[str]:
    """Return the texts in the values of `Warning` headers, each as one line, without those of caches on the way."""
    found = [match for value in values for match in _WARNING.finditer(value) if match["code"] == _CODE]
    texts = [one_line(_ESCAPE.sub(r"\1", _decoded(match["text"]))) for match in found]
    return [text for text in texts if text]


def _decoded(text: str) -> str:
    """Return a header's text, which HTTP libraries decode as Latin-1, as the UTF-8 that API servers send."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text
