"""What a server of Kubeflow Pipelines, or something else at its address, answers, as errors in one line. Pure.

Texts of libraries are not repeated, since they may quote headers; texts of servers are, shortened and without credentials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urljoin

from trainwright.cluster.connection_failure import CannotConnect, connection_failure
from trainwright.pipeline_runs.errors import NotKubeflowPipelines, ServerError
from trainwright.storage.web_address import shown_address
from trainwright.text.foreign_texts import without_credentials

_MAX_RETRY_AFTER = 60.0
_TOKEN_ADVICE = "set KFP_EXISTING_TOKEN to a token, or KF_PIPELINES_SA_TOKEN_PATH to a file with one"
_NEVER_SENT = ("Connection refused", "the host name", "Network is unreachable", "No route to host", "the server's certificate")


def error_response(address: str, status: int, body: str, headers: Mapping[str, str]) -> ServerError:
    """Return the error for an answer with another status than 2xx."""
    said = _message(body)
    if 300 <= status < 400:
        location = next((value for name, value in headers.items() if name.lower() == "location"), "")
        return ServerError(
            f"{address}: redirects to {_target(address, location)}: use that address, or if it is a login page, {_TOKEN_ADVICE}",
            401,
        )
    if status == 401:
        return ServerError(f"{address}: the credentials are missing or not accepted (401){said}; {_TOKEN_ADVICE}", status)
    if status == 403:
        return ServerError(f"{address}: not permitted (403){said}", status)
    if status == 404:
        return ServerError(f"{address}: not found (404){said}", status)
    what = "the server failed" if status >= 500 else "too many requests" if status == 429 else "the server refuses the request"
    return ServerError(f"{address}: {what} ({status}){said}", status, retry_after=_retry_after(headers))


def connection_error(address: str, error: Exception) -> ServerError:
    """Return the error for a request without an answer."""
    failure = connection_failure(address, error)  # its reasons hold for every server; only its first words name another
    reason = failure.message.removeprefix(f"cannot reach the Kubernetes API at {address}: ")
    if reason.startswith("the server's certificate"):
        reason += "; set SSL_CERT_FILE to the file with its certificate authority"
    return ServerError(
        f"cannot reach Kubeflow Pipelines at {address}: {reason}",
        never_sent=reason.startswith(_NEVER_SENT),
        permanent=isinstance(failure, CannotConnect),
    )


def not_json(address: str) -> ServerError:
    """Return the error for an answer that is no JSON object, such as a web page."""
    return NotKubeflowPipelines(f"{address} does not answer as an API of Kubeflow Pipelines 2: not JSON", 200)


def _message(text: str) -> str:
    """Return what the server says of the error; its uploads say it in another way than its other requests."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        text = str(answer.get("message") or answer.get("error_message") or answer.get("error") or "")
    elif text.lstrip().startswith("<"):
        text = ""
    return f": {without_credentials(text)}" if text.strip() else ""


def _target(address: str, location: str) -> str:
    try:
        return shown_address(urljoin(address, location))
    except ValueError:
        return "an invalid address"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    return min(float(text), _MAX_RETRY_AFTER) if text.isascii() and text.isdigit() and len(text) < 10 else None
