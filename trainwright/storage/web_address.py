"""Rules for http(s) addresses: TLS except on loopback, redirects that never weaken them, and a form for messages."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from trainwright.storage.errors import BadUri, StorageError

ALLOW_HTTP = "TRAINWRIGHT_ALLOW_HTTP"
_PORTS = {"http": 80, "https": 443}
_NOT_IN_HOSTS = re.compile(r'[\0- "<>\\^`{|}%\x7f]')
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
_SAFE = "/%:@!$&'()*+,;=~-._?[]"
"""Characters that stay as they are. An existing percent-encoding is not encoded again."""


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
