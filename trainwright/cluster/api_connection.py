"""One connection to an API server with the official Python client, versions 30 to 37: sends a request, and explains its failure.

Only `DynamicClient.request` is used, since its signature and raw response are the same in all versions. `kubernetes` is imported
when the first connection is made, because the import takes half a second.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterator
from typing import Any, TypedDict, Unpack

import orjson

from trainwright.api.errors import ApiError, Forbidden, ServiceUnavailable, Unauthorized, error_from_status
from trainwright.api.objects import Obj
from trainwright.cluster.answers import (
    OBJECT_BYTES,
    CannotConnect,
    connection_failure,
    pieces_of,
    read_answer,
    shorten_refusals,
)
from trainwright.cluster.kubeconfig import InvalidKubeconfig
from trainwright.cluster.protocol import OnWarning, report_warnings
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
JSON = "application/json"
_MAX_RENEWALS = 3
Query = list[tuple[str, Any]]


class RequestOptions(TypedDict, total=False):
    """`read_seconds` 0 means the default timeout, None no timeout. `most_bytes` are those of the answer."""

    accept: str
    body: Any
    query: Query
    content_type: str
    read_seconds: float | None
    on_warning: OnWarning | None
    most_bytes: int


class ApiConnection:
    """Sends requests to one server. `configuration` is a `kubernetes.client.Configuration`; `renew` reads it again from its source."""

    def __init__(self, configuration: Any, *, seconds: float | None = None, renew: Callable[[], Any] = lambda: None):
        self._connect_seconds = min(CONNECT_SECONDS, seconds or CONNECT_SECONDS)
        self._read_seconds = seconds or READ_SECONDS
        self.renew = renew
        self._connect(configuration)

    @property
    def host(self) -> str:
        return str(self.configuration.host)

    @property
    def configuration(self) -> Any:
        """The configuration of the client, with the credentials that are sent now."""
        return self._client.configuration

    def json(self, method: str, path: str, **request: Unpack[RequestOptions]) -> Obj:
        """Send a request, and return its answer. Raises ApiError."""
        response = self.open(method, path, **request)
        try:
            body = read_answer(response, self.host, request.get("most_bytes", OBJECT_BYTES))
        except ServiceUnavailable:
            self._server.note_lost()
            raise
        answer = self.decode(body)
        report_warnings(response.headers, request.get("on_warning"))
        return answer

    def decode(self, text: bytes) -> Obj:
        """Parse an answer, or a line of one. Raises ServiceUnavailable."""
        try:
            answer = orjson.loads(text)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise ServiceUnavailable(f"{self.host} returned something other than a Kubernetes object")
        return answer

    def chunks(self, response: Any) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises ServiceUnavailable if the connection is lost."""
        try:
            yield from pieces_of(response)
        except ServiceUnavailable:
            self._server.note_lost()
            raise

    def open(self, method: str, path: str, **request: Unpack[RequestOptions]) -> Any:
        """Send a request; returns the raw response, which the caller closes. Retries a 403 of a server that has just been started."""
        while True:
            try:
                response = self._send(method, path, **request)
            except Forbidden as error:  # raised again unless the server has just been started and does not know permissions yet
                self._server.check(error, self._is_refusing)
            except ApiError as error:
                # a 403 after that may be one of a restarted server
                if error.code in GATEWAY_ERRORS and not isinstance(error, CannotConnect):
                    self._server.note_lost()
                raise
            else:
                self._server.note_authorized()
                return response

    def _is_refusing(self) -> bool:
        """Whether the server refuses what any user may read."""
        try:
            close(self._send("get", "/version"))
        except ApiError as error:
            return isinstance(error, Forbidden)
        return False

    @property
    def _server(self) -> ServerState:
        return state_of_server(self.host)

    def _send(self, method: str, path: str, **request: Unpack[RequestOptions]) -> Any:
        """Send an HTTP request; returns the raw response. Retries a 401 if the credentials have been renewed since."""
        for _ in range(_MAX_RENEWALS):  # a credential plugin may keep returning new credentials that are rejected
            sent = self._credentials()
            try:
                return self._exchange(method, path, **request)
            except Unauthorized:
                if not self._has_new_credentials(sent):  # the same ones would be rejected again
                    raise
        return self._exchange(method, path, **request)

    def _credentials(self) -> tuple[dict[str, str], object]:
        return dict(self.configuration.api_key), self._certificate

    def _has_new_credentials(self, sent: tuple[dict[str, str], object]) -> bool:
        """Whether the credentials differ from those sent, after reading them again from their source if needed."""
        if self._credentials() == sent and (fresh := self.renew()) is not None:
            if _certificate_of(fresh) != self._certificate:
                self._connect(fresh)
            elif fresh.api_key or not sent[0]:  # without a token, the credential plugin failed: requests would be anonymous
                self.configuration.refresh_api_key_hook = fresh.refresh_api_key_hook  # the old hook would restore the old token
                self.configuration.api_key = fresh.api_key
        return self._credentials() != sent

    def _connect(self, configuration: Any) -> None:
        """Create the client; connections are bound to the client certificate."""
        from kubernetes.client import ApiClient  # type: ignore[import-untyped]
        from kubernetes.dynamic import DynamicClient  # type: ignore[import-untyped]
        from urllib3 import Retry

        # Retries are ours: urllib3 logs a warning for each, sleeps for a Retry-After, and resends a DELETE. A redirect is an answer,
        # and refused: urllib3 would raise an error, after it has read its body to the end.
        configuration.retries = Retry(total=0, respect_retry_after_header=False, raise_on_status=False, raise_on_redirect=False)
        client = ApiClient(configuration)
        shorten_refusals(client.rest_client.pool_manager)
        self._client = DynamicClient(client, discoverer=_no_discovery)
        self._certificate = _certificate_of(configuration)

    def _exchange(self, method: str, path: str, **request: Unpack[RequestOptions]) -> Any:
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
                header_params={"Accept": request.get("accept", JSON)},
                content_type=request.get("content_type", JSON),
                serialize=False,
                _request_timeout=(self._connect_seconds, self._read_seconds if read_seconds == 0 else read_seconds),
            )

        try:
            try:
                return send()
            except HTTPError as error:
                # the server may have acted on another request before the connection closed
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
        except (ConfigException, InvalidKubeconfig) as error:  # the client renews a token while it sends
            reason = f": {error}" if isinstance(error, InvalidKubeconfig) else ""
            raise Unauthorized(f"the credentials for {self.host} cannot be renewed{reason}") from None
        except (HTTPError, OSError, ValueError) as error:  # ValueError: a header that HTTP does not allow
            raise connection_failure(self.host, error) from None

    def _api_error(self, error: Any) -> ApiError:
        converted = _api_error_of(error)
        keys = [str(key).split()[-1] for key in self.configuration.api_key.values() if str(key).strip()]
        basic = str((self.configuration.proxy_headers or {}).get("proxy-authorization", "")).rpartition(" ")[2]
        password = base64.b64decode(basic).decode("latin-1").partition(":")[2]
        for secret in filter(None, (*keys, self.configuration.password, basic, password)):  # a proxy may echo the request
            converted.message = converted.message.replace(secret, "***")
        converted.args = (converted.message,)
        return converted


def _certificate_of(configuration: Any) -> object:
    """Return what identifies the client certificate, also if its file was replaced; None without one."""
    path = configuration.cert_file
    try:
        return (path, os.stat(path).st_mtime_ns) if path else None
    except OSError:  # without its time, the name of the file has to do
        return path


def _is_lost_connection(error: BaseException) -> bool:
    """Whether a connection was closed before its response, as a kept-alive one may be: a GET may be sent again."""
    from urllib3.exceptions import ProtocolError

    return isinstance(getattr(error, "reason", error), ProtocolError)


def _no_discovery(_client: Any, _cache_file: str | None) -> None:
    """Skip the client's discovery: all kinds are known, and discovery takes seconds on a large cluster."""


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


def close(response: Any) -> None:
    """Hang up, or give the connection of a whole answer back."""
    response.close()
    response.release_conn()
