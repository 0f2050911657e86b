"""What is known of a file before it is downloaded, and the checks that every answer for a part of it must pass."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http.client import HTTPMessage

from trainwright.storage.errors import StorageError
from trainwright.storage.http.client import HttpResponse
from trainwright.storage.http.content_digest import ContentDigest
from trainwright.storage.http.errors import RangesIgnored, RemoteChanged

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


@dataclass(frozen=True)
class RemoteFile:
    """A file to download. `name` is how messages call it; the URL may be a signature and is never shown."""

    name: str
    url: str = field(repr=False)
    size: int | None
    """Bytes; None if the server does not say."""
    digest: ContentDigest | None = None
    validator: str = ""
    """What `validator_of` returned for an earlier answer. Unneeded with a digest, which identifies the contents better."""
    supports_ranges: bool = True

    @property
    def identity(self) -> str:
        """What identifies the contents across attempts, or an empty string: then a download cannot be resumed."""
        return f"{self.digest.algorithm}:{self.digest.value}" if self.digest is not None else self.validator

    def check_part(self, response: HttpResponse, start: int) -> None:
        """Raise RangesIgnored, or RemoteChanged, for an answer that is not the rest of this file from `start` on."""
        if response.status == 200:
            raise RangesIgnored(f"{self.name}: the server does not support ranges")
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if response.status != 206 or found is None or int(found[1]) != start:
            raise StorageError(f"{self.name}: the server answers a request for a range with another one")
        if found[3] != "*" and int(found[3]) != self.size:
            raise RemoteChanged(f"{self.name} has {found[3]} bytes instead of {self.size}: it was replaced; try again")
        self.check_same(response)

    def check_whole(self, response: HttpResponse) -> None:
        """Raise RemoteChanged for an answer that is not this file from its first byte."""
        if response.status != 200:
            raise StorageError(f"{self.name}: the server answers with status {response.status} instead of 200")
        if self.size is not None and response.length is not None and response.length != self.size:
            raise RemoteChanged(f"{self.name} has {response.length} bytes instead of {self.size}: it was replaced; try again")
        self.check_same(response)

    def check_same(self, response: HttpResponse) -> None:
        """Raise StorageError for compressed contents, and RemoteChanged for another validator, if there is no digest."""
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise StorageError(f"{self.name}: the server compresses ({encoding[:20]!r}), although it was asked not to")
        if self.digest is None and self.validator and validator_of(response.headers) != self.validator:
            raise RemoteChanged(f"{self.name} was replaced during the download; try again")


def validator_of(headers: HTTPMessage) -> str:
    """Return the ETag or the time of the last change as one text, or an empty string if the server sends neither."""
    for name in ("ETag", "Last-Modified"):
        if value := headers.get(name, "").strip():
            return f"{name.lower()}:{value}"
    return ""


def total_size(response: HttpResponse) -> int | None:
    """Return the size of the whole file from the answer to a request for a range, or None."""
    if response.status == 206:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        return int(found[3]) if found is not None and found[3] != "*" else None
    return response.length
