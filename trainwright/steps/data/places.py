"""Places as people write them on a command line: `org/name` of the hub, a path of this machine, or a URI."""

from __future__ import annotations

from pathlib import Path

from trainwright.storage.uri import StorageUri
from trainwright.text.hub_names import is_bare_name


def place_uri(text: str) -> str:
    """Return the URI of a place: `file://` for a path, `hf://` for `org/name` unless there is such a path; a URI as it is.

    Raises ValueError for a path that can be none.
    """
    if not text or "://" in text:
        return text
    try:
        return f"hf://{text}" if is_bare_name(text) and not Path(text).expanduser().exists() else folder_uri(text)
    except (OSError, RuntimeError) as error:  # ~nobody, a name that is too long
        raise ValueError(f"{text[:200]}: {error}") from None


def folder_uri(text: str) -> str:
    """Return the URI of a folder of this machine, for exports, which are in no hub; a URI as it is.

    Raises ValueError for a path that can be none.
    """
    if not text or "://" in text:
        return text
    try:
        return str(StorageUri.from_path(Path(text).expanduser()))
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{text[:200]}: {error}") from None


def source_uri(text: str) -> str:
    """Return the URI of a source, as `place_uri`. Raises ValueError also for a path that does not exist."""
    uri = place_uri(text)
    if uri.startswith("file://") and "://" not in text:
        try:
            is_there = Path(text).expanduser().exists()
        except OSError as error:  # a name that is too long
            raise ValueError(f"{text[:200]}: {error.strerror}") from None
        if not is_there:
            hub = "org/name for a repository of the hub, or hf://org/name@REVISION"
            raise ValueError(f"{text[:200]}: there is no such file or folder; write {hub}")
    return uri
