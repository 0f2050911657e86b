"""Proxy settings with kubectl's semantics: the kubeconfig's `proxy-url`, else the environment.

The official Python client supports only the environment, and would use its proxy for loopback addresses, too.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import yaml


def proxy_of(files: Iterable[str], cluster: str) -> str:
    """Return the `proxy-url` of a cluster, from the first of these kubeconfigs that contains the cluster; empty if it has none.

    The files must be valid kubeconfigs.
    """
    for name in files:
        content = yaml.safe_load(Path(name).expanduser().read_bytes()) or {}
        for entry in content.get("clusters") or []:
            if entry.get("name") == cluster:
                return str((entry.get("cluster") or {}).get("proxy-url") or "")
    return ""


def set_proxy(configuration: Any, url: str) -> None:
    """Set the proxy of a `kubernetes.client.Configuration`, regardless of the environment. The password is not part of the URL."""
    if not url:
        if _is_loopback(configuration.host):
            configuration.proxy = None  # a proxy would resolve the loopback address to its own machine
        return
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    netloc = f"{host}:{parts.port}" if parts.port else host
    configuration.proxy, configuration.no_proxy = urlunsplit((parts.scheme, netloc, parts.path, "", "")), None
    if parts.username:
        from urllib3 import make_headers

        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        configuration.proxy_headers = make_headers(proxy_basic_auth=credentials)


def _is_loopback(host: str) -> bool:
    name = urlsplit(host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
