"""The variables of the Hugging Face libraries: which hub, with which token, from which cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwright.storage.errors import StorageError
from trainwright.storage.plain_files import read_plain

_PUBLIC = "https://huggingface.co"
_MAX_TOKEN = 4096


def hub_endpoint(environ: Mapping[str, str]) -> str:
    """Return the address of the hub without a slash at its end."""
    return (environ.get("HF_ENDPOINT", "").strip() or _PUBLIC).rstrip("/")


def hub_token(environ: Mapping[str, str]) -> str:
    """Return the token from the variables of Trainer's initializers, else from where Hugging Face libraries find it, or "".

    It is never logged or stored.
    """
    for name in ("ACCESS_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if token := environ.get(name, "").strip():
            return token
    if is_set(environ, "HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        return ""
    path = environ.get("HF_TOKEN_PATH", "") or str(hub_home(environ) / "token")
    try:
        return read_plain(Path(path).expanduser(), _MAX_TOKEN).decode().strip()
    except (OSError, StorageError, ValueError):
        return ""


def hub_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of Hugging Face libraries."""
    cache = environ.get("XDG_CACHE_HOME", "") or "~/.cache"
    return Path(environ.get("HF_HOME", "") or f"{cache}/huggingface").expanduser()


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Whether a variable of the Hugging Face libraries is true."""
    return environ.get(name, "").strip().upper() in ("1", "ON", "YES", "TRUE")
