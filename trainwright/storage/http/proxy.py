"""The proxy for a request, from HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY. Loopback addresses never use one."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from trainwright.storage.errors import StorageError
from trainwright.storage.web_address import is_loopback, shown_address


@dataclass(frozen=True)
class Proxy:
    """An http proxy; `authorization` is the header's value, or empty."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)


def proxy_for(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for a destination, or None. Raises StorageError for a proxy that is not an http one."""
    if is_loopback(host):
        return None
    # HTTP_PROXY in capitals can be set by a client of a CGI program, where the lower-case one wins everywhere else, too.
    given = next((value for name in (f"{scheme}_proxy", "all_proxy") if (value := _either(environ, name))), "")
    if not given or _bypasses(host, port, _either(environ, "no_proxy")):
        return None
    try:
        parts = urlsplit(given if "://" in given else f"http://{given}")
        proxy_port = parts.port or 80
    except ValueError:
        raise StorageError(f"the proxy of the environment is not a valid address: {shown_address(given)}") from None
    if parts.scheme != "http" or not parts.hostname:
        raise StorageError(f"the proxy {shown_address(given)} of the environment is not supported; expected http://host:port")
    authorization = ""
    if parts.username:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return Proxy(parts.hostname, proxy_port, authorization)


def _either(environ: Mapping[str, str], name: str) -> str:
    return (environ.get(name) or environ.get(name.upper()) or "").strip()


def _bypasses(host: str, port: int, no_proxy: str) -> bool:
    for entry in (entry.strip().lower() for entry in no_proxy.split(",")):
        if entry == "*":
            return True
        name = entry.removeprefix("*").lstrip(".")
        if name and (host.lower() in (name, f"[{name}]") or host.lower().endswith(f".{name}") or f"{host}:{port}" == name):
            return True
    return False
