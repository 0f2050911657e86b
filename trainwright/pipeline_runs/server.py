"""A server of Kubeflow Pipelines, through kfp's client: one request at a time, with a time limit, retries and errors of our own.

kfp's client finds the credentials. Its own calls have no time limit, follow redirects to login pages, and read one page of a list.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlunsplit

from trainwright.api.objects import Obj
from trainwright.backoff import Backoff
from trainwright.pipeline_runs.error_responses import connection_error, error_response, not_json
from trainwright.pipeline_runs.errors import BadHost, KfpMissing, NotKubeflowPipelines, ServerError
from trainwright.pipeline_runs.messages import read_message
from trainwright.storage.errors import BadUri
from trainwright.storage.web_address import parsed_address

HOST_VARIABLE = "KF_PIPELINES_ENDPOINT"
TOKEN_VARIABLE = "KFP_EXISTING_TOKEN"
"""As kfp's own command line reads it."""
_TOKEN_FILE_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
_TOKEN_FILE = "/var/run/secrets/kubeflow/pipelines/token"
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
_PAGE_SIZE = 100
_MAX_PAGES = 1000
_MAX_BYTES = 64 * 1024 * 1024
_LOG_PATH = "/apis/v1alpha1/runs/{run_id}/nodes/{pod}/log"
_LOG_PIECE = 256 * 1024
T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """A request is retried for `retry_seconds` in total, with the pauses of `backoff`.

    `read_seconds` is for how long one request waits for data. `look_up_seconds` are the waits before the look-ups of an object
    whose create got no answer: it may still be in progress.
    """

    retry_seconds: float = 30.0
    backoff: Backoff = Backoff(0.5, 5.0)
    read_seconds: float = _READ_SECONDS
    look_up_seconds: tuple[float, ...] = (1.0, 3.0, 6.0)


RETRY_POLICY = RetryPolicy()


class PipelineServer:
    """`address` is that of the API; `namespace` is empty on a server for one user."""

    def __init__(self, address: str, client: Any, namespace: str, retry_policy: RetryPolicy):
        self.address, self.namespace = address, namespace
        self.client = client
        self.retry_policy = retry_policy

    @property
    def in_namespace(self) -> dict[str, str]:
        """The namespace as an argument of lists and a field of objects, if there is one."""
        return {"namespace": self.namespace} if self.namespace else {}

    def send(self, operation: Callable[..., Any], *arguments: Any, answer: str = "", **options: Any) -> Obj:
        """Send one request and return the answer.

        Args:
            operation: Operation of the generated client.
            arguments: Its positional arguments.
            answer: The client's model of the answer, under whose names it is read; empty for an answer that nobody reads.
            options: Its keyword arguments.

        Raises ServerError.
        """
        body = self._request(lambda **how: operation(*arguments, **options, **how).read(_MAX_BYTES + 1))
        try:
            message = json.loads(body or b"{}") if len(body) <= _MAX_BYTES else None
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise not_json(self.address)
        return read_message(message, answer) if answer else message

    def log_tail(self, run_id: str, pod: str, most_bytes: int) -> bytes:
        """Return the end of the log of a step's pod, as long as the pod exists or its log is archived. Raises ServerError.

        The API has no such operation: the server answers it beside those of its OpenAPI, with the whole log each time.
        """
        path = {"run_id": run_id, "pod": pod}
        api = self.client.runs.api_client

        def read(**how: Any) -> bytes:
            response = api.call_api(_LOG_PATH, "GET", path, auth_settings=["Bearer"], _return_http_data_only=True, **how)
            if "html" in (response.headers.get("Content-Type") or ""):  # of what stands before the server
                raise not_json(self.address)
            tail = b""
            for piece in response.stream(_LOG_PIECE):
                tail = (tail + piece)[-most_bytes:]
            return tail

        return self._request(read)

    def _request(self, request: Callable[..., bytes]) -> bytes:
        """Send a request with time limits, and return its answer. Raises ServerError."""
        import urllib3
        from kfp_server_api.exceptions import ApiException

        timeouts = (_CONNECT_SECONDS, self.retry_policy.read_seconds)
        try:
            return request(_preload_content=False, _request_timeout=timeouts)
        except ApiException as error:
            raise error_response(self.address, error.status, self._without_token(error.body), dict(error.headers or {})) from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise connection_error(self.address, error) from None

    def _without_token(self, body: Any) -> str:
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
        token = self.client.existing_config.api_key.get("authorization")
        return text.replace(token, "***") if token else text

    def get(self, operation: Callable[..., Any], *arguments: Any, answer: str = "", **options: Any) -> Obj:
        """As `send`, with retries: for requests that change nothing when they are repeated."""
        return self.retried(lambda: self.send(operation, *arguments, answer=answer, **options))

    def retried(self, request: Callable[[], T], can_retry: Callable[[ServerError], bool] = lambda error: error.retryable) -> T:
        """Return the result of `request`, which is repeated after errors that pass. Raises ServerError."""
        retry_policy, started = self.retry_policy, time.monotonic()
        failures = 0
        while True:
            try:
                return request()
            except ServerError as error:
                failures += 1
                left = retry_policy.retry_seconds - (time.monotonic() - started)
                if not can_retry(error) or left <= 0:
                    raise
                wait = min(error.retry_after or retry_policy.backoff.pause(failures), left)
            time.sleep(wait)

    def named(self, operation: Callable[..., Any], field: str, answer: str, name: str, **options: Any) -> list[Obj]:
        """Return the objects with this display name, from all pages of a list.

        `field` is what the client's model `answer` of a page calls its objects.
        """
        return self.matching(operation, field, answer, "display_name", name, **options)

    def matching(self, operation: Callable[..., Any], field: str, answer: str, key: str, value: str, **options: Any) -> list[Obj]:
        """As `named`, by another key than the display name."""
        found: list[Obj] = []
        token = ""
        for _ in range(_MAX_PAGES):
            query = {"page_token": token, "page_size": _PAGE_SIZE, "filter": _filter(key, value)}
            page = self.get(operation, answer=answer, **query, **options)
            if page.get("total_size") and not token and field not in page:  # under another key: an empty list would be wrong
                raise ServerError(
                    f"{self.address}: the list of {_words(field)} has no objects that can be read", status=500, permanent=True
                )
            found += [each for each in page.get(field) or [] if each.get(key) == value]
            before, token = token, page.get("next_page_token") or ""
            if not token:
                return found
            if token == before:
                break
        raise ServerError(f"{self.address}: the list of {_words(field)} does not end", status=500, permanent=True)


def connect(
    host: str, *, namespace: str = "", environ: Mapping[str, str] = os.environ, retry_policy: RetryPolicy | None = None
) -> PipelineServer:
    """Connect to a server, and check that it is one.

    Args:
        host: Its address, with http:// or https://; empty for that in KF_PIPELINES_ENDPOINT. The token is in KFP_EXISTING_TOKEN,
            or in the file that KF_PIPELINES_SA_TOKEN_PATH names; other ways to authenticate are those of kfp.Client.
        namespace: Namespace of the user, on a server for many.
        environ: Environment variables.
        retry_policy: How long requests are retried.

    Raises BadHost, KfpMissing, NotKubeflowPipelines, and ServerError if the server cannot be reached or refuses the credentials.
    """
    address = server_address(host, environ)
    client = _client(address, namespace, environ)
    server = PipelineServer(address, client, namespace or client.get_user_namespace() or "", retry_policy or RETRY_POLICY)
    try:
        health = server.retried(
            lambda: server.send(client.healthzs.healthz_service_get_healthz, answer="V2beta1GetHealthzResponse"),
            can_retry=lambda error: error.retryable and not error.never_sent,  # a wrong address is reported at once
        )
    except ServerError as error:
        if error.status == 404:
            raise NotKubeflowPipelines(
                f"{address} has no API of Kubeflow Pipelines 2 (404); behind a gateway its path is often /pipeline", 404
            ) from None
        raise
    if health.get("multi_user") and not server.namespace:
        raise BadHost(f"{address} is a server for many users: --namespace is required")
    if namespace and health.get("multi_user") is False:
        raise BadHost(f"{address} is a server for one user, without namespaces: omit --namespace")
    return server


def server_address(host: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of a server, without a slash at the end. Raises BadHost."""
    chosen = host or environ.get(HOST_VARIABLE, "")
    if not chosen:
        raise BadHost(
            f"no server is named: set --host or {HOST_VARIABLE} to its address, such as https://kubeflow.example.com/pipeline"
        )
    try:
        parts = parsed_address(chosen)
    except BadUri as error:
        raise BadHost(f"host: {error}") from None
    if parts.query or "#" in chosen:
        raise BadHost("host: an address without a query and a fragment is expected")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", ""))


def _words(field: str) -> str:
    return field.replace("_", " ")


def _filter(key: str, value: str) -> str:
    """Return a filter of a list. Servers decode it once more than other arguments."""
    predicate = {"operation": "EQUALS", "key": key, "string_value": value}
    return json.dumps({"predicates": [predicate]}).replace("%", "%25").replace("+", "%2B")


def _client(address: str, namespace: str, environ: Mapping[str, str]) -> Any:
    try:
        import kfp
        import urllib3
    except ModuleNotFoundError as error:
        raise KfpMissing from error

    class Client(kfp.client.Client):  # type: ignore[misc]
        def _load_config(self, *arguments: Any, **options: Any) -> Any:
            """Leave retries to us, and redirects to nobody: a login page is no answer."""
            config = super()._load_config(*arguments, **options)
            config.retries = urllib3.Retry(total=0, raise_on_redirect=False)
            if authorities := environ.get("SSL_CERT_FILE"):
                config.ssl_ca_cert = authorities
            self.existing_config = config
            return config

        def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
            """Ask nothing while the client is made: kfp would retry without a limit of time, and log stack traces."""
            return self.api_models.V2beta1GetHealthzResponse(multi_user=False)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Client(
                host=address,
                existing_token=_token(environ) or None,
                credentials=_token_file(kfp, environ),
                **({"namespace": namespace} if namespace else {}),
            )
        except BadHost:
            raise
        except Exception as error:  # of the libraries for logins at Google and of the context file, which may quote credentials
            raise BadHost(f"kfp cannot make a client for {address}: {type(error).__name__}") from None


def _token(environ: Mapping[str, str]) -> str:
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if not all("!" <= letter <= "~" for letter in token):
        raise BadHost(f"{TOKEN_VARIABLE}: contains characters that no token has")
    return token


def _token_file(kfp: Any, environ: Mapping[str, str]) -> Any:
    """Return credentials that read the token of a pod's service account anew for each request; None if there is none."""
    file = environ.get(_TOKEN_FILE_VARIABLE) or (_TOKEN_FILE if os.path.exists(_TOKEN_FILE) else "")
    return kfp.client.ServiceAccountTokenVolumeCredentials(path=file) if file else None
