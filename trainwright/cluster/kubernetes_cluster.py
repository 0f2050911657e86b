"""A Kubernetes API reached through the official client, any version from 30 to 37.

Only `DynamicClient.request` is used to talk: its signature and its raw answer are the same in all of them.
`kubernetes` is imported when the first cluster is made, since the import alone takes half a second.
"""

from __future__ import annotations

import base64
import builtins
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from trainwright.api.errors import ApiError, BadRequest, ServiceUnavailable, Unauthorized, error_from_status
from trainwright.api.kinds import POD, Kind, kind_of
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.cluster.access import told_what_is_missing
from trainwright.cluster.protocol import Listing, PatchType, Propagation, WatchEvent

if TYPE_CHECKING:
    from trainwright.cluster.submission_mode import Choice

CONNECT_SECONDS = 10
READ_SECONDS = 60
SILENCE_SECONDS = 15
"""How long after its time a watch that says nothing is given up."""
PAGE = 500
_MOST_RENEWALS = 3
Query = list[tuple[str, Any]]
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
        from kubernetes.client import ApiClient  # type: ignore[import-untyped]
        from kubernetes.dynamic import DynamicClient  # type: ignore[import-untyped]

        self.default_namespace = default_namespace
        self._connect_seconds = min(CONNECT_SECONDS, seconds or CONNECT_SECONDS)
        self._read_seconds = seconds or READ_SECONDS
        self.origin = origin
        """Where the credentials came from, for logs and messages."""
        self.choice: Choice | None = None
        """How TrainJobs are submitted to it, where somebody has chosen."""
        self._renew = renew
        configuration.retries = _retries()
        self._client = DynamicClient(ApiClient(configuration), discoverer=_no_discovery)

    @property
    def host(self) -> str:
        return str(self._client.configuration.host)

    def within(self, seconds: float) -> KubernetesCluster:
        """The same cluster, over connections of its own, where a request that takes longer fails."""
        configuration = self._client.configuration
        return KubernetesCluster(
            configuration, default_namespace=self.default_namespace, origin=self.origin, seconds=seconds, renew=self._renew
        )

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Obj:
        return self._json("get", _object_path(kind, name, namespace))

    def list(self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = "") -> Listing:
        pages = builtins.list(self.pages(kind, namespace, label_selector=label_selector, field_selector=field_selector))
        return Listing([item for page in pages for item in page.items], pages[0].resource_version)

    def pages(
        self, kind: Kind, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> Iterator[Listing]:
        """The same, as it comes; all pages are of the moment of the first."""
        query = _query(labelSelector=label_selector, fieldSelector=field_selector, limit=PAGE)
        token, version = "", ""
        while True:
            page = self._json("get", kind.path(namespace), query=[*query, *_query(**{"continue": token})])
            items, metadata = page.get("items") or [], page.get("metadata") or {}
            for item in items:  # lists leave these out for built-in kinds
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            version = version or str(metadata.get("resourceVersion", ""))
            yield Listing(items, version)
            token = metadata.get("continue") or ""
            if not token:
                return

    def watch(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
    ) -> Iterator[WatchEvent]:
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            timeoutSeconds=timeout_seconds,
        )
        response = self._request("get", kind.path(namespace), query=query, read_seconds=timeout_seconds + SILENCE_SECONDS)
        try:
            for line in _lines(_chunks(response)):
                event = self._decoded(line)
                kind_of_event, changed = event.get("type"), event.get("object")
                if not isinstance(kind_of_event, str) or not isinstance(changed, dict):
                    raise ServiceUnavailable(f"{self.host} sent something that is no watch event")
                if kind_of_event == "ERROR":
                    raise error_from_status(changed)
                yield WatchEvent(kind_of_event, changed)
        finally:
            _close(response)

    def create(self, obj: Obj, *, dry_run: bool = False) -> Obj:
        """With `dry_run` the server only says what it would make of it."""
        kind = _known(obj)
        return self._json("post", kind.path(namespace_of(obj)), body=obj, query=_query(dryRun="All" if dry_run else ""))

    def update(self, obj: Obj) -> Obj:
        return self._json("put", _object_path(_known(obj), name_of(obj), namespace_of(obj)), body=obj)

    def update_status(self, obj: Obj) -> Obj:
        return self._json("put", _object_path(_known(obj), name_of(obj), namespace_of(obj)) + "/status", body=obj)

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: Any,
        namespace: str | None = None,
        *,
        patch_type: PatchType = "merge",
        subresource: str | None = None,
        field_manager: str = "trainwright",
        force: bool = False,
    ) -> Obj:
        path = _object_path(kind, name, namespace) + (f"/{subresource}" if subresource else "")
        query = _query(fieldManager=field_manager, force="true" if force and patch_type == "apply" else "")
        return self._json("patch", path, body=patch, query=query, content_type=_CONTENT[patch_type])

    def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str | None = None,
        *,
        propagation: Propagation = "Background",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        options: Obj = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if any(preconditions.values()):
            options["preconditions"] = {name: value for name, value in preconditions.items() if value}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        self._json("delete", _object_path(kind, name, namespace), body=options)

    def logs(
        self,
        name: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        since_time: str = "",
        timestamps: bool = False,
        previous: bool = False,
    ) -> Iterator[bytes]:
        query = _query(
            container=container,
            follow="true" if follow else "",
            tailLines=tail_lines,
            limitBytes=limit_bytes,
            sinceTime=since_time,
            timestamps="true" if timestamps else "",
            previous="true" if previous else "",
        )
        response = self._request(
            "get", _object_path(POD, name, namespace) + "/log", query=query, read_seconds=None if follow else 0
        )
        try:
            yield from _chunks(response)
        finally:
            _close(response)

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """One exchange by path, for what is no object of a kind: reviews and discovery. Raises ApiError."""
        return self._json(method, path, body=body)

    def _json(self, method: str, path: str, **more: Any) -> Obj:
        from urllib3.exceptions import HTTPError

        response = self._request(method, path, **more)
        try:
            body = response.data
        except (HTTPError, OSError) as error:
            raise ServiceUnavailable(f"the connection to {self.host} broke: {_reason(error)}") from error
        return self._decoded(body)

    def _decoded(self, text: bytes) -> Obj:
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise ServiceUnavailable(f"{self.host} answered with something that is no Kubernetes object")
        return answer

    def _request(self, method: str, path: str, **more: Any) -> Any:
        """One HTTP exchange; the raw response. Another one where the credentials were refused and there are others by now."""
        for _ in range(_MOST_RENEWALS):  # a plugin may make others for ever that are refused
            sent = dict(self._client.configuration.api_key)
            try:
                return self._exchange(method, path, **more)
            except Unauthorized:
                if not self._has_others_than(sent):
                    raise
        return self._exchange(method, path, **more)

    def _has_others_than(self, sent: dict[str, str]) -> bool:
        configuration = self._client.configuration
        if dict(configuration.api_key) == sent and (fresh := self._renew()) is not None:
            configuration.refresh_api_key_hook = fresh.refresh_api_key_hook  # the old one puts the old token back
            configuration.api_key = fresh.api_key
        return dict(configuration.api_key) != sent

    def _exchange(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Query | None = None,
        content_type: str = "application/json",
        read_seconds: float | None = 0,
    ) -> Any:
        """Every failure becomes an ApiError. `read_seconds` 0: as usual, None: for ever."""
        from kubernetes.client.exceptions import ApiException  # type: ignore[import-untyped]
        from kubernetes.config import ConfigException  # type: ignore[import-untyped]
        from kubernetes.dynamic.exceptions import DynamicApiError  # type: ignore[import-untyped]
        from urllib3.exceptions import HTTPError

        try:
            return self._client.request(
                method,
                path,
                body=body,
                query_params=query or [],
                header_params={"Accept": "application/json"},
                content_type=content_type,
                serialize=False,
                _request_timeout=(self._connect_seconds, self._read_seconds if read_seconds == 0 else read_seconds),
            )
        except (ApiException, DynamicApiError) as error:
            if not error.status:  # TLS: the client knows of no answer
                raise ServiceUnavailable(f"cannot reach the Kubernetes API at {self.host}: {_reason(error)}") from None
            raise told_what_is_missing(
                self._api_error(error), method, path, query or []
            ) from None  # the client's own error holds headers, and says nothing more
        except ConfigException as error:
            raise Unauthorized(f"the credentials for {self.host} cannot be renewed: {_reason(error)}") from error
        except (HTTPError, OSError) as error:
            raise ServiceUnavailable(f"cannot reach the Kubernetes API at {self.host}: {_reason(error)}") from error

    def _api_error(self, error: Any) -> ApiError:
        answered = _answered(error)
        for secret in _secrets(self._client.configuration):  # a proxy may send back what it was sent
            answered.message = answered.message.replace(secret, "***")
        answered.args = (answered.message,)
        return answered


def _secrets(configuration: Any) -> list[str]:
    keys = [str(key).split()[-1] for key in configuration.api_key.values() if str(key).strip()]
    basic = str((configuration.proxy_headers or {}).get("proxy-authorization", "")).rpartition(" ")[2]
    known = base64.b64decode(basic).decode("latin-1").partition(":")[2]
    return [secret for secret in (*keys, configuration.password, basic, known) if secret]


def _object_path(kind: Kind, name: str, namespace: str | None) -> str:
    """The URL path of one object. An empty name would be that of the whole collection."""
    for what, value in (("name", name), ("namespace", namespace or "default")):
        if not value or value in (".", "..") or any(c in "/%?#" or c.isspace() or not c.isprintable() for c in value):
            raise BadRequest(f"{what}: {value!r} is not the name of a {kind.kind if what == 'name' else 'namespace'}")
    return kind.path(namespace, name)


def _retries() -> Any:
    """Once more for a read whose kept connection turns out to be closed; all else is the caller's to decide.

    urllib3's own default would sleep through a Retry-After and send a DELETE again.
    """
    from urllib3 import Retry

    return Retry(total=1, status=0, redirect=0, allowed_methods=("GET",), respect_retry_after_header=False, raise_on_status=False)


def _no_discovery(_client: Any, _cache_file: str | None) -> None:
    """Our kinds are known; asking the server for all of its resources would cost seconds on a large cluster."""


def _query(**parameters: Any) -> Query:
    return [(name, value) for name, value in parameters.items() if value not in (None, "")]


def _known(obj: Obj) -> Kind:
    kind = kind_of(obj)
    if kind is None:
        raise ApiError(f"{obj.get('apiVersion')} {obj.get('kind')} is not a kind that Trainwright speaks of")
    return kind


def _answered(error: Any) -> ApiError:
    """What the client raised for an answer that is no success, by the answer's Status or, without one, its HTTP code."""
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


def _reason(error: BaseException) -> str:
    """The innermost cause in one line: `Connection refused`, not five wrapped exceptions."""
    inner = getattr(error, "reason", None)
    return " ".join(str(inner or error).split())[:300]


def _chunks(response: Any) -> Iterator[bytes]:
    """The body as it arrives. A connection that breaks ends it with ServiceUnavailable."""
    from urllib3.exceptions import HTTPError

    try:
        if hasattr(response, "read1"):
            while chunk := response.read1():
                yield chunk
            if missing := response.length_remaining:  # read1 says nothing of it
                raise ServiceUnavailable(f"the connection broke: {missing} bytes are missing")
        else:  # urllib3 1
            yield from response.stream(65536)
    except (HTTPError, OSError) as error:
        raise ServiceUnavailable(f"the connection broke: {_reason(error)}") from error


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    pending = b""
    for chunk in chunks:
        *complete, pending = (pending + chunk).split(b"\n")
        yield from filter(None, complete)


def _close(response: Any) -> None:
    response.close()
    response.release_conn()
