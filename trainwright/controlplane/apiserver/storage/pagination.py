"""Splits lists into pages.

A continue token holds the resource version of the first page and the last key sent, so that all pages are one consistent list.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import orjson

from trainwright.api.errors import BadRequest, Expired
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.storage.records import Key, Record

_VERSION = "meta.k8s.io/v1"
ANY_VERSION = -1
"""In a token: continue with the current list, even if it is inconsistent with the earlier pages."""


@dataclass(frozen=True)
class Page:
    """`token` is empty on the last page; `remaining` is None (unknown) if a selector was used."""

    records: list[Record]
    revision: int
    token: str = ""
    remaining: int | None = None


class ContinueExpired(Expired):
    """The resource version of a token is no longer kept; `token` continues with the current list."""

    def __init__(self, token: str):
        super().__init__(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
            "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
            "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
            "deleted between the time the first chunk was returned and now may show up in the list."
        )
        self.token = token

    def status(self) -> Obj:
        return {**super().status(), "metadata": {"continue": self.token}}


def paginate(records: list[Record], revision: int, limit: int, namespace: str | None, *, counted: bool) -> Page:
    """The first `limit` records (all for 0) of a list of one or all namespaces, with the token for the rest."""
    if limit <= 0 or len(records) <= limit:
        return Page(records, revision)
    page = records[:limit]
    return Page(page, revision, _token(revision, page[-1].key, namespace), len(records) - limit if counted else None)


def _token(revision: int, last: Key, namespace: str | None) -> str:
    # The format of kube-apiserver: the last key relative to the list, with a zero byte to skip that key itself.
    start = f"{last[0]}/{last[1]}\0" if last[0] and not namespace else f"{last[1]}\0"
    return base64.urlsafe_b64encode(orjson.dumps({"v": _VERSION, "rv": revision, "start": start})).decode().rstrip("=")


def parse_token(token: str, namespace: str | None) -> tuple[int, Key]:
    """The resource version of the list and the last key sent. Raises BadRequest."""
    try:
        content: Any = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = content["rv"], content["start"]
        if content["v"] != _VERSION or type(version) is not int or not start or (version <= 0 and version != ANY_VERSION):
            raise ValueError("unknown version")
        space, _, name = start.rstrip("\0").rpartition("/")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from None
    return version, (namespace or space, name)


def expired(last: Key, namespace: str | None) -> ContinueExpired:
    """The error for an expired token, with a new token for the rest of the current list."""
    return ContinueExpired(_token(ANY_VERSION, last, namespace))
