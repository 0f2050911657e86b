"""Names the folder of one attempt to export: `20261123T051502Z-9f3a12cd`. No two attempts share a folder, on any machine."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

_NAME = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[0-9a-f]{8}")
_TIME = "%Y%m%dT%H%M%SZ"


def new_attempt() -> str:
    return f"{datetime.now(UTC):{_TIME}}-{secrets.token_hex(4)}"


def attempt_time(key: str) -> datetime | None:
    """Return when the attempt began that stored a file, by its key `EXPORT/ATTEMPT/PATH`; None for other keys."""
    _, _, rest = key.partition("/")
    attempt, slash, _ = rest.partition("/")
    match = _NAME.fullmatch(attempt) if slash else None
    try:
        return datetime.strptime(match[1], _TIME).replace(tzinfo=UTC) if match else None
    except ValueError:  # no such day
        return None
