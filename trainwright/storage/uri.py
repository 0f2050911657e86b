"""URIs of datasets, models and exports, parsed and in canonical form."""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

from trainwright.storage.errors import BadUri, StorageError
from trainwright.storage.foreign_texts import shown_uri

SCHEMES = ("file", "hf", "s3")
_SYNTAX = re.compile(r"^([a-z][a-z0-9+.-]*)://(.*)$", re.IGNORECASE | re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]", re.ASCII)
_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)


@dataclass(frozen=True)
class StorageUri:
    """`file:///abs/path`, `hf://org/name[@revision]` (datasets and models alike), or `s3://bucket/key`.

    An S3 key is not percent-decoded, as in other tools; `location` is then `bucket/key`.
    """

    scheme: str
    location: str
    revision: str = ""

    @classmethod
    def parse(cls, text: str) -> StorageUri:
        """Parse a URI. Raises BadUri, which quotes the text, if it is malformed or its scheme is unknown."""
        match = _SYNTAX.match(text.strip())
        if not match:
            raise BadUri(f"{shown_uri(text)} is not a URI; expected one of {', '.join(s + '://' for s in SCHEMES)}")
        scheme, rest = match[1].lower(), match[2]
        if scheme not in SCHEMES:
            raise BadUri(f"{shown_uri(text)}: the scheme {scheme!r} is not supported yet; supported: {', '.join(SCHEMES)}")
        if scheme == "file":
            return cls("file", _file_path(text, rest))
        if scheme == "s3":
            return cls("s3", _object(text, rest))
        name, _, revision = rest.strip("/").partition("@")
        if not _HUB_NAME.fullmatch(name):
            raise BadUri(f"{shown_uri(text)}: expected hf://org/name or hf://org/name@revision")
        return cls("hf", name, revision)

    @classmethod
    def from_path(cls, path: Path) -> StorageUri:
        return cls("file", str(path.absolute()))

    @property
    def path(self) -> Path:
        """The path of a `file://` URI. Raises StorageError for other schemes."""
        if self.scheme != "file":
            raise StorageError(f"{self} is not a local path")
        return Path(self.location)

    @property
    def bucket(self) -> str:
        """The bucket of an `s3://` URI."""
        return self.location.partition("/")[0]

    @property
    def key(self) -> str:
        """The key of an `s3://` URI without leading and trailing slashes; empty for the whole bucket."""
        return self.location.partition("/")[2]

    def join(self, name: str) -> StorageUri:
        return StorageUri(self.scheme, f"{self.location.rstrip('/')}/{name}", self.revision)

    def __str__(self) -> str:
        location = quote(os.fsencode(self.location)) if self.scheme == "file" else self.location
        return f"{self.scheme}://{location}{'@' + self.revision if self.revision else ''}"


def _file_path(text: str, rest: str) -> str:
    host, slash, quoted = rest.partition("/")
    path = os.fsdecode(unquote_to_bytes(quoted))
    if host not in ("", "localhost") or not slash:
        raise BadUri(f"{shown_uri(text)}: a file URI needs an absolute path, as in file:///data/set (three slashes)")
    if "\0" in path or ".." in path.split("/"):
        raise BadUri(f"{shown_uri(text)}: a path cannot contain .. or a NUL byte")
    return posixpath.normpath("/" + path.lstrip("/"))


def _object(text: str, rest: str) -> str:
    bucket, _, key = rest.partition("/")
    key = key.strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise BadUri(f"{shown_uri(text)}: expected s3://bucket/key, but this is not a valid bucket name")
    if key and any(part in ("", ".", "..") for part in key.split("/")):
        raise BadUri(f"{shown_uri(text)}: a key cannot contain empty parts, . or ..")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in key):
        raise BadUri(f"{shown_uri(text)}: a key cannot contain control characters")
    return f"{bucket}/{key}" if key else bucket
