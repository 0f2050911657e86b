"""A server of Kubeflow Pipelines: kfp's client, connected, with retries, whole lists, and objects that are looked up or created.

kfp's client finds the credentials; `api_calls` adds what its requests lack. Of its methods, `create_experiment`, `run_pipeline` and
`upload_pipeline_version` print links to standard output, the filters of `get_experiment` and `get_pipeline_id` do not find `100% + 1`,
and `upload_pipeline` names the first version as the pipeline: instead of these, its generated operations are called.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlunsplit

from trainwright.api.objects import Obj
from trainwright.backoff import Backoff, retry
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadHost, BadPipeline, KfpMissing, NotKubeflowPipelines, ServerError
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import parsed_address

HOST_VARIABLE = "KF_PIPELINES_ENDPOINT"
TOKEN_VARIABLE = "KFP_EXISTING_TOKEN"
"""As kfp's own command line reads it."""
_TOKEN_FILE_VARIABLE = "KF_PIPELINES_SA_TOKEN_PATH"
_TOKEN_FILE = "/var/run/secrets/kubeflow/pipelines/token"
_EXPERIMENT_VARIABLE = "KF_PIPELINES_DEFAULT_EXPERIMENT_NAME"
_PAGE_SIZE = 100
_MAX_PAGES = 1000
_MAX_NAME = 127
_DIGEST_CHARS = 16
_CREDENTIALS, _CONFLICT = (401, 403), 409
T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """For how long failures in a row are retried, and rejected credentials, which may be renewed meanwhile.

    `can_retry` says whether the request may be repeated after an error; `on_outage` is called with the first error.
    """

    seconds: float = 30.0
    credentials_seconds: float = 0.0
    backoff: Backoff = Backoff(0.5, 5.0)
    can_retry: Callable[[ServerError], bool] = lambda error: error.retryable
    on_outage: Callable[[ServerError], None] = lambda _: None


RETRY_POLICY = RetryPolicy()


@dataclass(frozen=True)
class PipelineServer:
    """`client` is kfp's; `calls` are its requests. A server for one user has no namespace."""

    address: str
    client: Any
    calls: Any
    namespace: str | None
    retry_policy: RetryPolicy

    def retried(self, request: Callable[[], T], policy: RetryPolicy | None = None) -> T:
        """Return the result of `request`, which is repeated after errors that pass. Raises ServerError."""
        started, refused_since = time.monotonic(), None
        policy = policy or self.retry_policy

        def pause_after(error: ServerError, failures: int) -> float:
            nonlocal refused_since
            now, is_refusal = time.monotonic(), error.status in _CREDENTIALS
            refused_since = (refused_since or now) if is_refusal else None
            left = policy.credentials_seconds - now + refused_since if refused_since else policy.seconds - now + started
            if left <= 0 or not (is_refusal or policy.can_retry(error)):
                raise error
            if failures == 1:
                policy.on_outage(error)
            return min(error.retry_after or policy.backoff.pause(failures), left)

        return retry(request, ServerError, pause_after)

    def find(self, list_page: Callable[..., Any], key: str, value: str, **options: str | None) -> list[Any]:
        """Return the objects whose `key` has this value, from all pages of a list of kfp's client. Raises ServerError."""
        found: list[Any] = []
        predicate = {"operation": "EQUALS", "key": key, "string_value": value}
        # Servers decode a filter twice, other arguments once.
        encoded = json.dumps({"predicates": [predicate]}).replace("%", "%25").replace("+", "%2B")
        read = functools.partial(list_page, page_size=_PAGE_SIZE, filter=encoded, **options)
        token = ""
        for _ in range(_MAX_PAGES):
            page = self.retried(functools.partial(read, page_token=token))
            [field] = (name for name, kind in page.openapi_types.items() if kind.startswith("list["))
            objects, words = getattr(page, field), f"{self.address}: the list of {field.replace('_', ' ')}"
            if objects is None and page.total_size and not token:  # under another key: an empty list would be wrong
                raise ServerError(f"{words} has no objects that can be read", status=500, permanent=True)
            found += [each for each in objects or [] if getattr(each, key) == value]
            before, token = token, page.next_page_token
            if not token:
                return found
            if token == before:  # a server that repeats a page would be asked for ever
                break
        raise ServerError(f"{words} does not end", status=500, permanent=True)

    def find_or_create(self, find: Callable[[], list[Any]], create: Callable[[], Any]) -> Any:
        """Return the oldest object found, or a new one. Raises ServerError.

        Another client may create it at the same time, or an earlier attempt have lost its answer.
        """

        def attempt() -> Any:
            found = find()
            try:
                return min(found, key=lambda each: str(each.created_at)) if found else create()
            except ServerError as error:
                if error.status != _CONFLICT or not (found := find()):  # on a conflict, another client has created it meanwhile
                    raise
                return found[0]

        return self.retried(attempt)

    def experiment_id(self, name: str) -> str:
        """Return the id of an experiment, which is created if there is none. Raises ServerError."""
        client = self.client
        create = client.experiments.experiment_service_create_experiment
        return str(self._named(client.list_experiments, create, name).experiment_id)

    def upload(self, pipeline: CompiledPipeline) -> Any:
        """Return the version of a pipeline with exactly this text, which is uploaded if there is none. Raises ServerError.

        Its name has the digest of the text: the same pipeline is uploaded once, and another is another version.
        """
        client, create = self.client, self.client.pipelines.pipeline_service_create_pipeline
        owner = self._named(client.list_pipelines, create, pipeline.name).pipeline_id
        version = f"sha256-{pipeline.digest[:_DIGEST_CHARS]}"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "pipeline.yaml")
            file.write_text(pipeline.text, "utf-8")
            return self.find_or_create(
                lambda: self.find(client.list_pipeline_versions, "display_name", version, pipeline_id=owner),
                lambda: client.pipeline_uploads.upload_pipeline_version(str(file), name=version, pipelineid=owner),
            )

    def _named(self, list_page: Callable[..., Any], create: Callable[[Obj], Any], name: str) -> Any:
        body = {"display_name": name} | ({"namespace": self.namespace} if self.namespace else {})
        find = functools.partial(self.find, list_page, "display_name", name, namespace=self.namespace)
        return self.find_or_create(find, lambda: create(body))


def checked_name(name: str, what: str) -> str:
    """Return a name that a server can keep. Raises BadPipeline."""
    if not 1 <= len(name) <= _MAX_NAME or not name.isprintable() or name != name.strip():
        raise BadPipeline(f"{what}: a name has 1 to {_MAX_NAME} printable characters, without spaces around them")
    return name


def experiment_name(name: str) -> str:
    """Return the name of the experiment to use: the given one, else that of the environment, else kfp's default."""
    return checked_name(name or os.environ.get(_EXPERIMENT_VARIABLE) or "Default", "experiment")


def connect(host: str, *, namespace: str = "") -> PipelineServer:
    """Connect to a server, and check that it is one.

    Args:
        host: Its address, with http:// or https://; empty for that in KF_PIPELINES_ENDPOINT. The token is in KFP_EXISTING_TOKEN,
            or in the file that KF_PIPELINES_SA_TOKEN_PATH names; other ways to authenticate are those of kfp.Client.
        namespace: Namespace of the user, on a server for many.

    Raises BadHost, KfpMissing, NotKubeflowPipelines, and ServerError if the server cannot be reached or refuses the credentials.
    """
    address = server_address(host)
    try:
        import kfp

        from trainwright.pipeline_runs.api_calls import ApiCalls
    except ModuleNotFoundError as error:
        raise KfpMissing from error
    client = _client(kfp.client, address, namespace)
    calls = ApiCalls(address, client.runs.api_client)
    server = PipelineServer(address, client, calls, namespace or client.get_user_namespace() or None, RETRY_POLICY)
    # A wrong address is reported at once.
    policy = replace(RETRY_POLICY, can_retry=lambda error: error.retryable and not error.never_sent)
    try:
        health = server.retried(client.healthzs.healthz_service_get_healthz, policy)
    except ServerError as error:
        if error.status == 404:
            raise NotKubeflowPipelines(
                f"{address} has no API of Kubeflow Pipelines 2 (404); behind a gateway its path is often /pipeline", 404
            ) from None
        raise
    if health.multi_user and not server.namespace:
        raise BadHost(f"{address} is a server for many users: --namespace is required")
    if namespace and health.multi_user is False:
        raise BadHost(f"{address} is a server for one user, without namespaces: omit --namespace")
    return server


def server_address(host: str) -> str:
    """Return the address of a server, without a slash at the end. Raises BadHost."""
    chosen = host or os.environ.get(HOST_VARIABLE, "")
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


def _client(kfp: Any, address: str, namespace: str) -> Any:
    class Client(kfp.Client):  # type: ignore[misc]
        def get_kfp_healthz(self, sleep_duration: int = 5) -> Any:
            """Ask nothing while the client is made: kfp would retry without a limit of time, and log stack traces."""
            return self.api_models.V2beta1GetHealthzResponse(multi_user=False)

    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not all("!" <= letter <= "~" for letter in token):
        raise BadHost(f"{TOKEN_VARIABLE}: contains characters that no token has")
    has_file = os.environ.get(_TOKEN_FILE_VARIABLE) or os.path.exists(_TOKEN_FILE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Client(
                host=address,
                existing_token=token or None,
                credentials=kfp.ServiceAccountTokenVolumeCredentials() if has_file else None,  # read anew for each request
                ssl_ca_cert=os.environ.get("SSL_CERT_FILE"),
                **({"namespace": namespace} if namespace else {}),
            )
        except Exception as error:  # of the libraries for logins at Google and of the context file, which may quote credentials
            raise BadHost(f"kfp cannot make a client for {address}: {type(error).__name__}") from None
