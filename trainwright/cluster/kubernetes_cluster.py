"""Implements `Cluster` over a connection with the official Python client: the verbs as requests, and their answers as objects."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable, Iterator
from typing import Any, Unpack

from trainwright.api.errors import ApiError, BadRequest, ServiceUnavailable, error_from_status
from trainwright.api.kinds import POD, Kind, kind_of
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.answers import OBJECT_BYTES, PAGE_BYTES, AnswerTooLarge, TooManyPages, lines_of
from trainwright.cluster.api_connection import JSON, ApiConnection, Query, close
from trainwright.cluster.protocol import (
    CreateOptions,
    DeleteOptions,
    Listing,
    ListOptions,
    LogOptions,
    PatchOptions,
    WatchEvent,
    WatchOptions,
)

SILENCE_SECONDS = 15
"""Seconds after the end of its timeout at which a silent watch is aborted."""
PAGE = 500
_MAX_OBJECTS = 1_000_000
"""In a list: no client of ours has the memory for more."""
FIELD_MANAGER = "trainwright"
"""The manager of written fields in `metadata.managedFields`; without one the server would record the name of the Python client."""
_METADATA = "PartialObjectMetadata"
_CONTENT = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class KubernetesCluster:
    """Implements `Cluster`. `configuration` is a `kubernetes.client.Configuration`; see `trainwright.cluster.connect`."""

    def __init__(
        self,
        configuration: Any,
        *,
        default_namespace: str = "default",
        origin: str = "",
        seconds: float | None = None,
        renew: Callable[[], Any] = lambda: None,
    ):
        self.default_namespace = default_namespace
        self.origin = origin
        """Source of the credentials, for logs and messages."""
        self._page, self._page_bytes, self._is_metadata_only = PAGE, PAGE_BYTES, False
        self._connection = ApiConnection(configuration, seconds=seconds, renew=renew)

    @property
    def host(self) -> str:
        return self._connection.host

    def with_timeout(self, seconds: float) -> KubernetesCluster:
        """Return a client for the same cluster, with its own connections, whose requests time out after `seconds`."""
        return KubernetesCluster(
            self._connection.configuration,
            default_namespace=self.default_namespace,
            origin=self.origin,
            seconds=seconds,
            renew=self._connection.renew,
        )

    def with_token(self, token: str) -> KubernetesCluster:
        """Return a client for the same cluster, with its own connections, that sends `token` and no other credentials."""
        configuration = copy.deepcopy(self._connection.configuration)
        configuration.api_key, configuration.api_key_prefix = {"authorization": f"Bearer {token}"}, {}
        configuration.username = configuration.password = None
        configuration.cert_file = configuration.key_file = configuration.refresh_api_key_hook = None
        return KubernetesCluster(configuration, default_namespace=self.default_namespace, origin="token")

    def in_small_memory(self, *, page: int, page_bytes: int = PAGE_BYTES, metadata_only: bool = False) -> KubernetesCluster:
        """Return a client with the same connections that reads lists in pages of so many objects, or only the metadata of objects.

        Where objects are so large that a page would have more than `page_bytes`, it reads one object at a time.
        """
        client = copy.copy(self)
        client._page, client._page_bytes, client._is_metadata_only = page, page_bytes, metadata_only
        return client

    def _accept(self, form: str) -> str:
        metadata = f"{JSON};as={form};g=meta.k8s.io;v=v1,"  # what a server without this form falls back to has more in it
        return f"{metadata}{JSON}" if self._is_metadata_only else JSON

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self._connection.json("get", _object_path(kind, name, namespace), accept=self._accept(_METADATA))

    def list(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Listing:
        pages = builtins.list(self.pages(kind, namespace, **options))
        return Listing([item for page in pages for item in page.items], pages[0].resource_version)

    def pages(self, kind: Kind, namespace: str | None = None, **options: Unpack[ListOptions]) -> Iterator[Listing]:
        """As `list`, page by page; all pages have the resource version of the first."""
        query, accept = _selectors(options), self._accept(f"{_METADATA}List")
        token, version, limit = "", "", self._page
        for _ in range(_MAX_OBJECTS // self._page):
            page_query = [*query, *_query(limit=limit, **{"continue": token})]
            most = self._page_bytes if limit > 1 else max(self._page_bytes, OBJECT_BYTES)
            try:
                page = self._connection.json(
                    "get", _collection_path(kind, namespace), query=page_query, accept=accept, most_bytes=most
                )
            except AnswerTooLarge:
                if most >= OBJECT_BYTES:  # one object alone is too large: no smaller page is left
                    raise
                limit = 1
                continue
            limit = self._page
            items, metadata = page.get("items") or [], page.get("metadata") or {}
            if (
                not isinstance(metadata, dict)
                or not isinstance(items, builtins.list)
                or not all(isinstance(item, dict) for item in items)
            ):
                raise ServiceUnavailable(f"{self.host} returned something other than a list of Kubernetes objects")
            for item in items:  # omitted in lists of built-in kinds
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            version = version or str(metadata.get("resourceVersion", ""))
            yield Listing(items, version)
            token = metadata.get("continue") or ""
            if not token:
                return
        raise TooManyPages(f"{self.host} has more than {_MAX_OBJECTS} {kind.plural}, or pages without end")

    def watch(self, kind: Kind, namespace: str | None = None, **options: Unpack[WatchOptions]) -> Iterator[WatchEvent]:
        seconds = options.get("timeout_seconds", 300)
        query = _query(
            watch="true", allowWatchBookmarks="true", resourceVersion=options["resource_version"], timeoutSeconds=seconds
        )
        query += _selectors(options)
        path, silence = _collection_path(kind, namespace), seconds + SILENCE_SECONDS
        response = self._connection.open("get", path, query=query, accept=self._accept(_METADATA), read_seconds=silence)
        try:
            for line in lines_of(self._connection.chunks(response), self.host, OBJECT_BYTES):
                event = self._connection.decode(line)
                kind_of_event, changed = event.get("type"), event.get("object")
                if not isinstance(kind_of_event, str) or not isinstance(changed, dict):
                    raise ServiceUnavailable(f"{self.host} sent an invalid watch event")
                if kind_of_event == "ERROR":
                    raise error_from_status(changed)
                yield WatchEvent(kind_of_event, changed)
        finally:
            close(response)

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        path = _collection_path(_known_kind(obj), namespace_of(obj))
        query = _query(
            dryRun="All" if options.get("dry_run") else "",
            fieldManager=FIELD_MANAGER,
            fieldValidation=options.get("field_validation"),
        )
        return self._connection.json("post", path, body=obj, query=query, on_warning=options.get("on_warning"))

    def update(self, obj: Obj) -> Obj:
        return self._put(obj, _object_path(_known_kind(obj), name_of(obj), namespace_of(obj)))

    def update_status(self, obj: Obj) -> Obj:
        return self._put(obj, _object_path(_known_kind(obj), name_of(obj), namespace_of(obj)) + "/status")

    def _put(self, obj: Obj, path: str) -> Obj:
        return self._connection.json("put", path, body=obj, query=_query(fieldManager=FIELD_MANAGER))

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        subresource, patch_type = options.get("subresource"), options.get("patch_type", "merge")
        path = _object_path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        force = options.get("force", False) and patch_type == "apply"
        query = _query(fieldManager=options.get("field_manager", FIELD_MANAGER), force="true" if force else "")
        return self._connection.json("patch", path, body=patch, query=query, content_type=_CONTENT[patch_type])

    def delete(self, kind: Kind, name: str, namespace: str | None = None, **options: Unpack[DeleteOptions]) -> None:
        body: Obj = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": options.get("propagation", "Background"),
        }
        preconditions = {"uid": options.get("uid"), "resourceVersion": options.get("resource_version")}
        if any(preconditions.values()):
            body["preconditions"] = {name: value for name, value in preconditions.items() if value}
        if (grace := options.get("grace_period_seconds")) is not None:
            body["gracePeriodSeconds"] = grace
        self._connection.json("delete", _object_path(kind, name, namespace), body=body)

    def logs(self, name: str, namespace: str, **options: Unpack[LogOptions]) -> Iterator[bytes]:
        follow = options.get("follow", False)
        query = _query(
            container=options.get("container"),
            follow="true" if follow else "",
            tailLines=options.get("tail_lines"),
            limitBytes=options.get("limit_bytes"),
            sinceTime=options.get("since_time"),
            timestamps="true" if options.get("timestamps") else "",
            previous="true" if options.get("previous") else "",
        )
        path = _object_path(POD, name, namespace) + "/log"
        idle_seconds = options.get("idle_seconds") if follow else None
        response = self._connection.open("get", path, query=query, read_seconds=idle_seconds if follow else 0)
        try:
            yield from self._connection.chunks(response if idle_seconds is None else _UntilIdle(response))
        finally:
            close(response)

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """Send one request by URL path, for access reviews and discovery. Raises ApiError."""
        return self._connection.json(method, path, body=body)


def _object_path(kind: Kind, name: str, namespace: str | None) -> str:
    """Return the URL path of one object. Rejects an empty name, whose path would be that of the collection."""
    if not _is_segment(name):
        raise BadRequest(f"name: {name!r} is not the name of a {kind.kind}")
    return f"{_collection_path(kind, namespace)}/{name}"


def _collection_path(kind: Kind, namespace: str | None) -> str:
    """Return the URL path of a collection. Rejects a namespace that would be another path."""
    if namespace and not _is_segment(namespace):
        raise BadRequest(f"namespace: {namespace!r} is not the name of a namespace")
    return kind.path(namespace)


def _is_segment(text: str) -> bool:
    return bool(text) and text not in (".", "..") and not any(c in "/%?#" or c.isspace() or not c.isprintable() for c in text)


def _query(**parameters: Any) -> Query:
    return [(name, value) for name, value in parameters.items() if value not in (None, "")]


def _selectors(options: ListOptions) -> Query:
    return _query(labelSelector=options.get("label_selector"), fieldSelector=options.get("field_selector"))


def _known_kind(obj: Obj) -> Kind:
    kind = kind_of(obj)
    if kind is None:
        raise ApiError(f"Trainwright does not support the kind {obj.get('apiVersion')} {obj.get('kind')}")
    return kind


class _UntilIdle:
    """A response that ends, instead of failing, when nothing has arrived within its read timeout."""

    def __init__(self, response: Any):
        self._response = response
        self._is_idle = False

    @property
    def headers(self) -> Any:
        return self._response.headers

    @property
    def length_remaining(self) -> int | None:
        return None if self._is_idle else getattr(self._response, "length_remaining", None)

    def close(self) -> None:
        self._response.close()

    def read1(self, size: int) -> bytes:
        from urllib3.exceptions import ReadTimeoutError

        try:
            read: bytes = (
                self._response.read1(size) if hasattr(self._response, "read1") else next(self._response.stream(size), b"")
            )
        except ReadTimeoutError:  # a followed log may be silent
            self._is_idle = True
            return b""
        return read
