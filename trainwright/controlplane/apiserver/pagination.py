"""Lists in pages.

A continue token names the version of the first page and the last key sent, so that all pages show one moment.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import orjson

from trainwright.api.errors import BadRequest, Expired
from trainwright.controlplane.apiserver.records import Key, Record

_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True)
class Page:
    """`token` is empty on the last page; `remaining` is unknown (None) where a selector was used."""

    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


def cut(records: list[Record], revision: int, limit: int, *, counted: bool) -> Page:
    """The first `limit` of these records (all for 0), with the token for the rest."""
    if limit <= 0 or len(records) <= limit:
        return Page(records, revision)
    page = records[:limit]
    return Page(page, revision, _token(revision, page[-1].key), len(records) - limit if counted else None)


def _token(revision: int, last: Key) -> str:
    # kube-apiserver's own form: the key after which to go on, with a zero byte to step over that very key.
    start = f"{last[0]}/{last[1]}\0" if last[0] else f"{last[1]}\0"
    return base64.urlsafe_b64encode(orjson.dumps({"v": _VERSION, "rv": revision, "start": start})).decode().rstrip("=")


def parse_token(token: str) -> tuple[int, Key]:
    """The version of the list and the last key that was sent. Raises BadRequest."""
    try:
        content: Any = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if content["v"] != _VERSION or not isinstance(content["rv"], int) or not content["start"]:
            raise ValueError("unknown version")
        namespace, _, name = content["start"].rstrip("\0").rpartition("/")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from None
    return content["rv"], (namespace, name)


def expired() -> Expired:
    """The answer to a token whose version is forgotten."""
    return Expired(
        "The provided continue parameter is too old to display a consistent list result. "
        "You can start a new list without the continue parameter."
    )
