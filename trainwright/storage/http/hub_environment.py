"""Variables of the Hugging Face libraries, and their HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PUBLIC = "https://huggingface.co"


def hub_endpoint(environ: Mapping[str, str]) -> str:
    """Return the address of the hub without a slash at its end."""
    return (environ.get("HF_ENDPOINT", "").strip() or _PUBLIC).rstrip("/")


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Whether a variable of the Hugging Face libraries is true."""
    return environ.get(name, "").strip().upper() in ("1", "ON", "YES", "TRUE")


def http_library() -> Any:
    """Return the HTTP client of `huggingface_hub`: version 2 has another one than version 1."""
    from huggingface_hub.utils import _http

    return getattr(_http, "httpx2", None) or _http.httpx  # type: ignore[attr-defined]
