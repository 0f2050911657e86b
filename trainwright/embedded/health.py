"""Asks a control plane of this machine whether it is well, with a deadline: one that hangs still accepts connections.

Uses the standard library only, because `trainwright status` must answer at once.
"""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

ANSWER_SECONDS = 1.5
_OK = 200
_LONGEST_TEXT = 1000


def health_problem(host: str, port: int, authority: Path, seconds: float = ANSWER_SECONDS) -> str:
    """Return why the API server cannot be used, or an empty string. `authority` is the file with its CA; `seconds` bound each step."""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    except OSError as error:
        return f"its certificate authority cannot be read: {error.strerror or error}"
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read(_LONGEST_TEXT).decode("utf-8", "replace").strip()
    except TimeoutError:
        return f"it does not respond within {seconds:g} s"
    except (OSError, http.client.HTTPException) as error:
        return f"it does not respond: {error or type(error).__name__}"
    finally:
        connection.close()
    return "" if answer.status == _OK else f"it is not ready: {text or answer.status}"
