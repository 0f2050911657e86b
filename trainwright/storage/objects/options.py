"""Options of obstore that are the same for all object stores: timeouts, retries, trust."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainwright.storage.errors import StorageError


def client_options(*, allow_http: bool = False, ca_bundle: str = "", headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the options of the HTTP client. `ca_bundle` is a file with certificates. Raises StorageError if it cannot be read."""
    options: dict[str, Any] = {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(minutes=2),
        "timeout": timedelta(hours=6),  # of a whole file
    }
    if headers:
        options["default_headers"] = dict(headers)
    if ca_bundle:
        try:
            options["root_certificate"] = Path(ca_bundle).read_bytes()
        except OSError as error:
            raise StorageError(f"AWS_CA_BUNDLE: {ca_bundle}: {error.strerror}") from error
    return options


def retry_options(seconds: float) -> dict[str, Any]:
    """Return the options with which each request is retried for so many seconds; 0 is not at all."""
    if not seconds:
        return {"max_retries": 0}
    backoff = {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=15), "base": 2}
    return {"max_retries": 1000, "retry_timeout": timedelta(seconds=seconds), "backoff": backoff}


def import_obstore(scheme: str) -> Any:
    """Return the library. Raises StorageError, which says what to install."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise StorageError(f"{scheme}:// needs the package obstore: install trainwright[s3]") from error
    return obstore
