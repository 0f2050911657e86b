"""Implements `Cluster` with the official Python client, versions 30 to 37.

Only `DynamicClient.request` is used, since its signature and raw response are the same in all versions. `kubernetes` is imported
when the first cluster is created, because the import takes half a second.
"""

from __future__ import annotations

import base64
import builtins
import copy
import os
from collections.abc import Callable, Iterator
from typing import Any, TypedDict, Unpack

import orjson

from trainwright.api.errors import ApiError, BadRequest, Forbidden, ServiceUnavailable, Unauthorized, error_from_status
from trainwright.api.kinds import POD, Kind, kind_of
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.answers import (
    OBJECT_BYTES,
    PAGE_BYTES,
    AnswerTooLarge,
    CannotConnect,
    TooManyPages,
    connection_failure,
    lines_of,
    pieces_of,
    read_answer,
    shorten_refusals,
)
from trainwright.cluster.kubeconfig import InvalidKubeconfig
from trainwright.cluster.protocol import (
    CreateOptions,
    DeleteOptions,
    Listing,
    ListOptions,
    LogOptions,
    OnWarning,
    PatchOptions,
    WatchEvent,
    WatchOptions,
    report_warnings,
)
from trainwright.cluster.refusals import (
    GATEWAY_ERRORS,
    ServerState,
    state_of_server,
    with_missing_permission,
    with_namespace_hint,
    with_quota_hint,
)

CONNECT_SECONDS = 10
READ_SECONDS = 60
SILENCE_SECONDS = 15
"""Seconds after the end of its timeout at which a silent watch is aborted."""
PAGE = 500
_MAX_OBJECTS = 1_000_000
"""In a list: no client of ours has the memory for more."""
FIELD_MANAGER = "trainwright"
"""The manager of written fields in `metadata.managedFields`; without one the server would record the name of the Python client."""
_MAX_RENEWALS = 3
_JSON, _METADATA = "application/json", "PartialObjectMetadata"
Query = list[tuple[str, Any]]
_CONTENT = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}


class _Request(TypedDict, total=False):
    """`read_seconds` 0 means the default timeout, None no timeout. `most_bytes` are those of the answer."""

    accept: str
    body: Any
    query: Query
    content_type: str
    read_seconds: float | None
    on_warning: OnWarning | None
    most_bytes: int


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
        self._connect_seconds = min(CONNECT_SECONDS, seconds or CONNECT_SECONDS)
        self._read_seconds = seconds or READ_SECONDS
        self.origin = origin
        """Source of the credentials, for logs and messages."""
        self._renew = renew
        self._page, self._page_bytes, self._is_metadata_only = PAGE, PAGE_BYTES, False
        self._connect(configuration)

    @property
    def host(self) -> str:
        return str(self._client.configuration.host)

    def with_timeout(self, seconds: float) -> KubernetesCluster:
        """Return a client for the same cluster, with its own connections, whose requests time out after `seconds`."""
        configuration = self._client.configuration
        return KubernetesCluster(
            configuration, default_namespace=self.default_namespace, origin=self.origin, seconds=seconds, renew=self._renew
        )

    def with_token(self, token: str) -> KubernetesCluster:
        """Return a client for the same cluster, with its own connections, that sends `token` and no other credentials."""
        configuration = copy.deepcopy(self._client.configuration)
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
        metadata = f"{_JSON};as={form};g=meta.k8s.io;v=v1,"  # what a server without this form falls back to has more in it
        return f"{metadata}{_JSON}" if self._is_metadata_only else _JSON

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self._json("get", _object_path(kind, name, namespace), accept=self._accept(_METADATA))

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
                page = self._json("get", _collection_path(kind, namespace), query=page_query, accept=accept, most_bytes=most)
            except AnswerTooLarge:
                if most >= OBJECT_BYTES:
                    raise
                limit = 1
                continue
            limit = self._page
            items, metadata = page.get("items") or [], page.get("metadata") or {}
            if not isinstance(metadata, dict) or not isinstance(items, builtins.list) or not all(map(_is_object, items)):
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
        response = self._request("get", path, query=query, accept=self._accept(_METADATA), read_seconds=silence)
        try:
            for line in lines_of(self._chunks(response), self.host, OBJECT_BYTES):
                event = self._decode(line)
                kind_of_event, changed = event.get("type"), event.get("object")
                if not isinstance(kind_of_event, str) or not isinstance(changed, dict):
                    raise ServiceUnavailable(f"{self.host} sent an invalid watch event")
                if kind_of_event == "ERROR":
                    raise error_from_status(changed)
                yield WatchEvent(kind_of_event, changed)
        finally:
            _close(response)

    def create(self, obj: Obj, **options: Unpack[CreateOptions]) -> Obj:
        path = _collection_path(_known_kind(obj), namespace_of(obj))
        query = _query(
            dryRun="All" if options.get("dry_run") else "",
            fieldManager=FIELD_MANAGER,
            fieldValidation=options.get("field_validation"),
        )
        return self._json("post", path, body=obj, query=query, on_warning=options.get("on_warning"))

    def update(self, obj: Obj) -> Obj:
        return self._put(obj, _object_path(_known_kind(obj), name_of(obj), namespace_of(obj)))

    def update_status(self, obj: Obj) -> Obj:
        return self._put(obj, _object_path(_known_kind(obj), name_of(obj), namespace_of(obj)) + "/status")

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Unpack[PatchOptions]) -> Obj:
        subresource, patch_type = options.get("subresource"), options.get("patch_type", "merge")
        path = _object_path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        force = options.get("force", False) and patch_type == "apply"
        query = _query(fieldManager=options.get("field_manager", FIELD_MANAGER), force="true" if force else "")
        return self._json("patch", path, body=patch, query=query, content_type=_CONTENT[patch_type])

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
        self._json("delete", _object_path(kind, name, namespace), body=body)

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
        response = self._request("get", path, query=query, read_seconds=idle_seconds if follow else 0)
        try:
            yield from self._chunks(response if idle_seconds is None else _UntilIdle(response))
        finally:
            _close(response)

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """Send one request by URL path, for access reviews and discovery. Raises ApiError."""
        return self._json(method, path, body=body)

    def _chunks(self, response: Any) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises ServiceUnavailable if the connection is lost."""
        try:
            yield from pieces_of(response)
        except ServiceUnavailable:
            self._server.note_lost()
            raise

    def _put(self, obj: Obj, path: str) -> Obj:
        return self._json("put", path, body=obj, query=_query(fieldManager=FIELD_MANAGER))

    def _json(self, method: str, path: str, **request: Unpack[_Request]) -> Obj:
        response = self._request(method, path, **request)
        try:
            body = read_answer(response, self.host, request.get("most_bytes", OBJECT_BYTES))
        except ServiceUnavailable:
            self._server.note_lost()
            raise
        answer = self._decode(body)
        report_warnings(response.headers, request.get("on_warning"))
        return answer

    def _decode(self, text: bytes) -> Obj:
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise ServiceUnavailable(f"{self.host} returned something other than a Kubernetes object")
        return answer

    def _request(self, method: str, path: str, **request: Unpack[_Request]) -> Any:
        """Send an HTTP request; returns the raw response. Retries a 403 of a server that has just been started."""
        while True:
            try:
                response = self._send(method, path, **request)
            except Forbidden as error:
                self._server.check(error, self._is_refusing)
            except ApiError as error:
                if error.code in GATEWAY_ERRORS and not isinstance(error, CannotConnect):
                    self._server.note_lost()
                raise
            else:
                self._server.note_authorized()
                return response

    def _is_refusing(self) -> bool:
        """Whether the server refuses what any user may read."""
        try:
            _close(self._send("get", "/version"))
        except ApiError as error:
            return isinstance(error, Forbidden)
        return False

    @property
    def _server(self) -> ServerState:
        return state_of_server(self.host)

    def _send(self, method: str, path: str, **request: Unpack[_Request]) -> Any:
        """Send an HTTP request; returns the raw response. Retries a 401 if the credentials have been renewed since."""
        for _ in range(_MAX_RENEWALS):  # a credential plugin may keep returning new credentials that are rejected
            sent = self._credentials()
            try:
                return self._exchange(method, path, **request)
            except Unauthorized:
                if not self._has_new_credentials(sent):
                    raise
        return self._exchange(method, path, **request)

    def _credentials(self) -> tuple[dict[str, str], object]:
        return dict(self._client.configuration.api_key), self._certificate

    def _has_new_credentials(self, sent: tuple[dict[str, str], object]) -> bool:
        """Whether the credentials differ from those sent, after reading them again from their source if needed."""
        if self._credentials() == sent and (fresh := self._renew()) is not None:
            if _certificate_of(fresh) != self._certificate:
                self._connect(fresh)
            elif fresh.api_key or not sent[0]:  # without a token, the credential plugin failed: requests would be anonymous
                configuration = self._client.configuration
                configuration.refresh_api_key_hook = fresh.refresh_api_key_hook  # the old hook would restore the old token
                configuration.api_key = fresh.api_key
        return self._credentials() != sent

    def _connect(self, configuration: Any) -> None:
        """Create the client; connections are bound to the client certificate."""
        from kubernetes.client import ApiClient  # type: ignore[import-untyped]
        from kubernetes.dynamic import DynamicClient  # type: ignore[import-untyped]

        configuration.retries = _no_retries()
        client = ApiClient(configuration)
        shorten_refusals(client.rest_client.pool_manager)
        self._client = DynamicClient(client, discoverer=_no_discovery)
        self._certificate = _certificate_of(configuration)

    def _exchange(
        self,
        method: str,
        path: str,
        **request: Unpack[_Request],
    ) -> Any:
        """Send an HTTP request. Raises every failure as an ApiError."""
        from kubernetes.client.exceptions import ApiException  # type: ignore[import-untyped]
        from kubernetes.config import ConfigException  # type: ignore[import-untyped]
        from kubernetes.dynamic.exceptions import DynamicApiError  # type: ignore[import-untyped]
        from urllib3.exceptions import HTTPError

        query, read_seconds = request.get("query") or [], request.get("read_seconds", 0)

        def send() -> Any:
            return self._client.request(
                method,
                path,
                body=request.get("body"),
                query_params=query,
                header_params={"Accept": request.get("accept", _JSON)},
                content_type=request.get("content_type", "application/json"),
                serialize=False,
                _request_timeout=(self._connect_seconds, self._read_seconds if read_seconds == 0 else read_seconds),
            )

        try:
            try:
                return send()
            except HTTPError as error:
                if method != "get" or not _is_lost_connection(error):
                    raise
                return send()
        except (ApiException, DynamicApiError) as error:
            if not error.status:  # TLS error: there is no response
                raise connection_failure(self.host, error) from None
            report_warnings(error.headers, request.get("on_warning"))
            converted = with_namespace_hint(with_quota_hint(self._api_error(error)), method)
            # The client's error contains headers, and no other information.
            raise with_missing_permission(converted, method, path, query) from None
        except (ConfigException, InvalidKubeconfig) as error:
            reason = f": {error}" if isinstance(error, InvalidKubeconfig) else ""
            raise Unauthorized(f"the credentials for {self.host} cannot be renewed{reason}") from None
        except (HTTPError, OSError, ValueError) as error:  # ValueError: a header that HTTP does not allow
            raise connection_failure(self.host, error) from None

    def _api_error(self, error: Any) -> ApiError:
        converted = _api_error_of(error)
        for secret in _secrets(self._client.configuration):  # a proxy may echo the request
            converted.message = converted.message.replace(secret, "***")
        converted.args = (converted.message,)
        return converted


def _certificate_of(configuration: Any) -> object:
    """Return what identifies the client certificate, also if its file was replaced; None without one."""
    path = configuration.cert_file
    try:
        return (path, os.stat(path).st_mtime_ns) if path else None
    except OSError:
        return path


def _secrets(configuration: Any) -> list[str]:
    keys = [str(key).split()[-1] for key in configuration.api_key.values() if str(key).strip()]
    basic = str((configuration.proxy_headers or {}).get("proxy-authorization", "")).rpartition(" ")[2]
    password = base64.b64decode(basic).decode("latin-1").partition(":")[2]
    return [secret for secret in (*keys, configuration.password, basic, password) if secret]


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


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_segment(text: str) -> bool:
    return bool(text) and text not in (".", "..") and not any(c in "/%?#" or c.isspace() or not c.isprintable() for c in text)


def _no_retries() -> Any:
    """Leave retries to us: urllib3 logs a warning for each, sleeps for a Retry-After, and resends a DELETE.

    A redirect is an answer, and refused: urllib3 would raise an error, after it has read its body to the end.
    """
    from urllib3 import Retry

    return Retry(total=0, respect_retry_after_header=False, raise_on_status=False, raise_on_redirect=False)


def _is_lost_connection(error: BaseException) -> bool:
    """Whether a connection was closed before its response, as a kept-alive one may be: a GET may be sent again."""
    from urllib3.exceptions import ProtocolError

    return isinstance(getattr(error, "reason", error), ProtocolError)


def _no_discovery(_client: Any, _cache_file: str | None) -> None:
    """Skip the client's discovery: all kinds are known, and discovery takes seconds on a large cluster."""


def _query(**parameters: Any) -> Query:
    return [(name, value) for name, value in parameters.items() if value not in (None, "")]


def _selectors(options: ListOptions) -> Query:
    return _query(labelSelector=options.get("label_selector"), fieldSelector=options.get("field_selector"))


def _known_kind(obj: Obj) -> Kind:
    kind = kind_of(obj)
    if kind is None:
        raise ApiError(f"Trainwright does not support the kind {obj.get('apiVersion')} {obj.get('kind')}")
    return kind


def _api_error_of(error: Any) -> ApiError:
    """Convert the client's exception for an error response, by the Status in its body or else its HTTP status code."""
    try:
        status = orjson.loads(error.body or b"{}")
    except orjson.JSONDecodeError:
        text = error.body.decode("utf-8", "replace") if isinstance(error.body, bytes) else str(error.body)
        status = {"message": f"HTTP {error.status}: {' '.join(text.split())[:300]}"}
    if not isinstance(status, dict):
        status = {"message": f"HTTP {error.status}"}
    converted = error_from_status(status, int(error.status or 500))
    retry_after = (getattr(error, "headers", None) or {}).get("Retry-After")
    if retry_after and str(retry_after).isdigit():
        converted.retry_after = float(retry_after)
    return converted


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
        except ReadTimeoutError:
            self._is_idle = True
            return b""
        return read


def _close(response: Any) -> None:
    response.close()
    response.release_conn()
