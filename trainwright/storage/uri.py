"""URIs of datasets, models and exports, parsed and in canonical form.

Addresses of http(s) need TLS except on loopback, have redirects that never weaken them, and a form for messages.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, quote, unquote, unquote_to_bytes, urljoin, urlsplit

from trainwright.storage.errors import BadUri, StorageError
from trainwright.text.foreign_texts import shown_uri

SCHEMES = ("az", "file", "gs", "hf", "http", "https", "pvc", "s3")
_BUCKETS = ("az", "gs", "pvc", "s3")
_SYNTAX = re.compile(r"^([a-z][a-z0-9+.-]*)://(.*)$", re.IGNORECASE | re.DOTALL)
_CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]", re.ASCII)
_HUB_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)
_HUB_KINDS: dict[str, Literal["dataset", "model"]] = {"datasets": "dataset", "models": "model"}
_HUB_REFS = ("convert", "heads", "pr", "tags")
"""`refs/KIND/NAME` is one revision, although it has slashes. In other revisions, a slash is written %2F."""
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})", re.ASCII)
_EXPECTED_HUB = "expected hf://[datasets/|models/]org/name[@revision][/path]"
ALLOW_HTTP = "TRAINWRIGHT_ALLOW_HTTP"
_PORTS = {"http": 80, "https": 443}
_NOT_IN_HOSTS = re.compile(r'[\0- "<>\\^`{|}%\x7f]')
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_SAFE = "/%:@!$&'()*+,;=~-._?[]"
"""Characters that stay as they are. An existing percent-encoding is not encoded again."""


@dataclass(frozen=True)
class StorageUri:
    """`file:///abs/path`, `hf://[datasets/|models/]org/name[@revision][/path]`, `s3://bucket/key`, `gs://bucket/key`,
    `az://container/key`, `pvc://claim/path`, or an http(s) address of a file.

    A key and a path in a repository are not percent-decoded, as in other tools. `location` is `bucket/key` for object stores,
    `claim/path` for claims, `org/name` for the hub, and `host/path`, percent-encoded, for http(s).
    """

    scheme: str
    location: str
    revision: str = ""
    kind: Literal["", "dataset", "model"] = ""
    """What the repository contains, if the URI says so."""
    folder: str = ""
    """The path inside the repository; empty for all of it."""
    sha256: str = ""
    """The expected digest of an http(s) file, from the fragment `#sha256=DIGEST`."""
    query: str = field(default="", repr=False)
    """The query of an http(s) address. It may be a signature, so it is in no text form of the URI."""

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
        if scheme in _BUCKETS:
            return cls(scheme, _object(text, scheme, rest))
        if scheme == "hf":
            return _repository(text, rest)
        return _web_file(text, f"{scheme}://{rest}")

    @classmethod
    def from_path(cls, path: Path) -> StorageUri:
        """Return the URI of a path, relative to the working directory. `..` is resolved, after links, as the system does."""
        return cls("file", str(path.resolve() if ".." in path.parts else path.absolute()))

    @property
    def path(self) -> Path:
        """The path of a `file://` URI. Raises StorageError for other schemes."""
        if self.scheme != "file":
            raise StorageError(f"{self} is not a local path")
        return Path(self.location)

    @property
    def bucket(self) -> str:
        """The bucket of an object store's URI; for Azure the container, of `pvc://` the claim."""
        return self.location.partition("/")[0]

    @property
    def key(self) -> str:
        """The key of an object store's URI without leading and trailing slashes; empty for the whole bucket."""
        return self.location.partition("/")[2]

    @property
    def is_web(self) -> bool:
        """Whether this is an http(s) address."""
        return self.scheme in ("http", "https")

    @property
    def request_url(self) -> str:
        """The address to request, with the query. Never shown."""
        return f"{self.scheme}://{self.location}{'?' + self.query if self.query else ''}"

    def join(self, name: str) -> StorageUri:
        return replace(self, location=f"{self.location.rstrip('/')}/{name}")

    def __str__(self) -> str:
        if self.scheme == "file":
            return f"file://{quote(os.fsencode(self.location))}"
        if self.is_web:
            return f"{self.scheme}://{self.location}{'#sha256=' + self.sha256 if self.sha256 else ''}"
        kind = f"{self.kind}s/" if self.kind else ""
        revision = f"@{_quoted_revision(self.revision)}" if self.revision else ""
        return f"{self.scheme}://{kind}{self.location}{revision}{'/' + self.folder if self.folder else ''}"


def _file_path(text: str, rest: str) -> str:
    host, slash, quoted = rest.partition("/")
    path = os.fsdecode(unquote_to_bytes(quoted))
    if host not in ("", "localhost") or not slash:
        raise BadUri(f"{shown_uri(text)}: a file URI needs an absolute path, as in file:///data/set (three slashes)")
    if "\0" in path or ".." in path.split("/"):
        raise BadUri(f"{shown_uri(text)}: a path cannot contain .. or a NUL byte")
    return posixpath.normpath("/" + path.lstrip("/"))


def _object(text: str, scheme: str, rest: str) -> str:
    bucket, _, key = rest.partition("/")
    key = key.strip("/")
    kind = "claim" if scheme == "pvc" else "bucket"
    if not (_CLAIM if scheme == "pvc" else _BUCKET).fullmatch(bucket):
        raise BadUri(f"{shown_uri(text)}: expected {scheme}://{kind}/key, but this is not a valid {kind} name")
    if key and any(part in ("", ".", "..") for part in key.split("/")):
        raise BadUri(f"{shown_uri(text)}: a key cannot contain empty parts, . or ..")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in key):
        raise BadUri(f"{shown_uri(text)}: a key cannot contain control characters")
    return f"{bucket}/{key}" if key else bucket


def _repository(text: str, rest: str) -> StorageUri:
    parts = rest.strip("/").split("/")
    kind = _HUB_KINDS[parts.pop(0)] if len(parts) > 1 and parts[0] in _HUB_KINDS else ""
    # A single name is a repository without an owner, an old form of the hub: `gpt2`, `gpt2@main`.
    count = 1 if len(parts) == 1 or "@" in parts[0] else 2
    name, at, revision = "/".join(parts[:count]).partition("@")
    path = parts[count:]
    if revision == "refs" and len(path) >= 2 and path[0] in _HUB_REFS:
        revision, path = "/".join(("refs", *path[:2])), path[2:]
    if not _HUB_NAME.fullmatch(name) or (at and not revision):
        raise BadUri(f"{shown_uri(text)}: {_EXPECTED_HUB}")
    if any(part in ("", ".", "..") or not part.isprintable() for part in path):
        raise BadUri(f"{shown_uri(text)}: a path in a repository cannot contain empty parts, ., .. or control characters")
    revision = unquote(revision)
    if not revision.isprintable():
        raise BadUri(f"{shown_uri(text)}: a revision cannot contain control characters")
    return StorageUri("hf", name, revision, kind=kind, folder="/".join(path))


def _quoted_revision(revision: str) -> str:
    first, _, name = revision.removeprefix("refs/").partition("/")
    if revision.startswith("refs/") and first in _HUB_REFS and name and "/" not in name:
        return f"refs/{first}/{_quoted(name)}"
    return _quoted(revision)


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F").replace(" ", "%20")  # a space at the end of a URI is not part of it


def _web_file(text: str, url: str) -> StorageUri:
    address, _, fragment = url.partition("#")
    try:
        parts = parsed_address(address)
    except BadUri:
        raise BadUri(f"{shown_uri(text)}: expected https://host/path, without a user name or a password") from None
    digest = _SHA256.fullmatch(fragment)
    if fragment and digest is None:
        raise BadUri(f"{shown_uri(text)}: the part after # is not sha256= and 64 hexadecimal digits")
    name = unquote(urlsplit(address).path.rpartition("/")[2])
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise BadUri(f"{shown_uri(text)}: the address names no file")
    return StorageUri(
        parts.scheme, f"{parts.netloc}{parts.path}", sha256=digest[1].lower() if digest is not None else "", query=parts.query
    )


def checked_address(url: str, environ: Mapping[str, str] = os.environ) -> SplitResult:
    """Return the parts of an http(s) URL, encoded for a request. Raises BadUri, for plain http to other machines, too."""
    parts = parsed_address(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not allows_http(environ):
        raise BadUri(
            f"{shown_address(url)}: plain http is refused, since anybody on the way can read and change it; "
            f"use https, or set {ALLOW_HTTP}=true"
        )
    return parts


def parsed_address(url: str) -> SplitResult:
    """Return the parts of an http(s) URL, encoded for a request, without the fragment. Raises BadUri."""
    if _CONTROL.search(url):  # `urlsplit` would leave some out
        raise BadUri(f"{shown_address(url)!r} contains control characters")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname or ""
        if not host.isascii():
            host = host.encode("idna").decode()
    except ValueError:  # a port that is no number, an unclosed bracket; UnicodeError is one of them
        raise BadUri(f"{shown_address(url)!r} is not a valid address") from None
    if parts.scheme not in _PORTS or not host or _NOT_IN_HOSTS.search(host):
        raise BadUri(f"{shown_address(url)!r} is not an http:// or https:// address")
    if parts.username is not None:
        raise BadUri(f"{shown_address(url)!r}: remove the user name and the password from the address")
    netloc = f"[{host}]" if ":" in host else host
    return SplitResult(
        parts.scheme,
        f"{netloc}:{port}" if port is not None else netloc,
        quote(parts.path or "/", safe=_SAFE),
        quote(parts.query, safe=_SAFE),
        "",
    )


def redirect_target(url: str, location: str) -> str:
    """Return where a redirect leads. Raises StorageError for one without an address, or from https to http."""
    if not location:
        raise StorageError(f"{shown_address(url)}: the server redirects to nowhere")
    try:
        target = urljoin(url, location)
        scheme = urlsplit(target).scheme
    except ValueError:
        raise StorageError(f"{shown_address(url)}: the server redirects to an invalid address") from None
    if urlsplit(url).scheme == "https" and scheme != "https":
        raise StorageError(f"{shown_address(url)}: the server redirects from https to {scheme}, which is refused")
    return target


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port. Credentials for one origin are sent to no other."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme, 0)


def shown_address(url: str) -> str:
    """Return a URL for a message: without user, query and fragment, and at most 200 characters."""
    rest = url.partition("?")[0].partition("#")[0]
    scheme, separator, after = rest.partition("://")
    host, slash, path = after.partition("/")
    text = f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


@functools.lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether a host name or an IP address is this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def allows_http(environ: Mapping[str, str]) -> bool:
    """Whether the environment allows plain http to other machines."""
    return environ.get(ALLOW_HTTP, "").strip().lower() in ("1", "true", "yes")
