"""Adds to all requests of kfp's client, below it, what they lack: time limits, a largest answer, no login pages, errors in one line.

Texts of libraries are not repeated, since they may quote headers; texts of servers are, shortened and without credentials.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import urllib3
from kfp_server_api.exceptions import ApiException

from trainwright.api.errors import ServiceUnavailable
from trainwright.cluster.answers import (
    AnswerEncoded,
    AnswerTooLarge,
    CannotConnect,
    connection_failure,
    read_answer,
    shorten_refusals,
)
from trainwright.pipeline_runs.errors import NotKubeflowPipelines, ServerError
from trainwright.storage.uri import shown_address
from trainwright.text.foreign_texts import without_credentials

CONNECT_SECONDS, READ_SECONDS = 10.0, 60.0
_MAX_BYTES = 64 * 1024 * 1024
_IDS = {
    "V2beta1Experiment": "experiment_id",
    "V2beta1Pipeline": "pipeline_id",
    "V2beta1PipelineVersion": "pipeline_version_id",
    "V2beta1RecurringRun": "recurring_run_id",
    "V2beta1Run": "run_id",
}
_MAX_RETRY_AFTER = 60.0
_TOKEN_ADVICE = "set KFP_EXISTING_TOKEN to a token, or KF_PIPELINES_SA_TOKEN_PATH to a file with one"
_WORDS = {401: "the credentials are missing or not accepted", 403: "not permitted", 404: "not found", 429: "too many requests"}
_NEVER_SENT = ("Connection refused", "the host name", "Network is unreachable", "No route to host", "the server's certificate")


class ApiCalls:
    """Replaces `call_api` of kfp's API client, through which each of its methods sends its request."""

    def __init__(self, address: str, api_client: Any):
        self._address, self._api, self._call = address, api_client, api_client.call_api
        api_client.call_api = self
        never = urllib3.Retry(total=0, raise_on_redirect=False)  # a redirect is an answer, and `PipelineServer` retries
        pool = api_client.rest_client.pool_manager
        pool.connection_pool_kw["retries"] = never
        shorten_refusals(pool)

    def __call__(self, path: str, method: str, *arguments: Any, response_type: str | None = None, **options: Any) -> Any:
        """Send a request, and return the client's model of the answer. Raises ServerError."""
        body = self.read(lambda response: read_answer(response, self._address, _MAX_BYTES), path, method, *arguments, **options)
        own_id = _IDS.get(response_type or "")
        try:  # kfp's client reads any object, also one without an id
            message = json.loads(body or b"{}")
            if isinstance(message, dict) and (own_id is None or message.get(own_id)):
                return self._api.deserialize(SimpleNamespace(data=body or b"{}"), response_type)
        except (ValueError, TypeError, AttributeError, OverflowError, ApiException):  # another type than the model's
            pass
        raise self.not_kubeflow_pipelines()

    def read(self, read: Callable[[Any], bytes], path: str, method: str, *arguments: Any, **options: Any) -> bytes:
        """Send a request, and return what `read` makes of the response. Raises ServerError."""
        options |= {"_preload_content": False, "_request_timeout": (CONNECT_SECONDS, READ_SECONDS)}
        try:
            return read(self._call(path, method, *arguments, **options))
        except ApiException as error:
            raise self._refusal(error.status, error.body, urllib3.HTTPHeaderDict(error.headers or {})) from None
        except (AnswerTooLarge, AnswerEncoded):
            raise self.not_kubeflow_pipelines() from None
        except ServiceUnavailable as error:
            raise ServerError(f"Kubeflow Pipelines at {self._address}: {error.message}", 0) from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # Its reasons hold for every server; only its first words name another one.
            failure = connection_failure(self._address, error)
            reason = failure.message.removeprefix(f"cannot reach the Kubernetes API at {self._address}: ")
            if reason.startswith("the server's certificate"):
                reason += "; set SSL_CERT_FILE to the file with its certificate authority"
            message = f"cannot reach Kubeflow Pipelines at {self._address}: {reason}"
            is_permanent = isinstance(failure, CannotConnect)
            raise ServerError(message, never_sent=reason.startswith(_NEVER_SENT), permanent=is_permanent) from None

    def not_kubeflow_pipelines(self) -> ServerError:
        """Return the error for an answer other than a JSON object, such as a web page."""
        return NotKubeflowPipelines(f"{self._address} does not answer as an API of Kubeflow Pipelines 2: not JSON", 200)

    def _refusal(self, status: int, body: Any, headers: Mapping[str, str]) -> ServerError:
        if 300 <= status < 400:
            try:
                target = shown_address(urljoin(self._address, headers.get("Location", "")))
            except ValueError:
                target = "an invalid address"
            advice = f"use that address, or if it is a login page, {_TOKEN_ADVICE}"
            return ServerError(f"{self._address}: redirects to {target}: {advice}", 401)
        what, advice = _WORDS.get(status, "the server failed" if status >= 500 else "the server refuses the request"), ""
        if status == 401:
            advice = f"; {_TOKEN_ADVICE}"
        wait = headers.get("Retry-After", "")
        seconds = min(float(wait), _MAX_RETRY_AFTER) if wait.isascii() and wait.isdigit() and len(wait) < 10 else None
        return ServerError(f"{self._address}: {what} ({status}){self._said(body)}{advice}", status, retry_after=seconds)

    def _said(self, body: Any) -> str:
        """Return what the server says of the error; its uploads say it in another way than its other requests."""
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
        if token := self._api.configuration.api_key.get("authorization"):
            text = text.replace(token, "***")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            text = str(answer.get("message") or answer.get("error_message") or answer.get("error") or "")
        elif text.lstrip().startswith("<"):
            text = ""
        return f": {without_credentials(text)}" if text.strip() else ""
