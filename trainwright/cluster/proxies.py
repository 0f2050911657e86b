"""The proxy between a client and its cluster, as kubectl takes it: what the kubeconfig names, else what the environment does.

The official client knows only the environment's, and would send it what is meant for this machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import yaml


def proxy_of(files: Iterable[str], cluster: str) -> str:
    """`proxy-url` of a cluster, from the first of these kubeconfigs that has it; empty where it has none.

    They have been read before: what is no kubeconfig has been refused.
    """
    for name in files:
        content = yaml.safe_load(Path(name).expanduser().read_bytes()) or {}
        for entry in content.get("clusters") or []:
            if entry.get("name") == cluster:
                return str((entry.get("cluster") or {}).get("proxy-url") or "")
    return ""


def set_proxy(configuration: Any, url: str) -> None:
    """Let a `kubernetes.client.Configuration` go through that proxy, whatever the environment says. Its password stays out of URLs."""
    if not url:
        if _is_loopback(configuration.host):
            configuration.proxy = None  # a proxy of the environment would look for the cluster on its own machine
        return
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    place = f"{host}:{parts.port}" if parts.port else host
    configuration.proxy, configuration.no_proxy = urlunsplit((parts.scheme, place, parts.path, "", "")), None
    if parts.username:
        from urllib3 import make_headers

        known = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        configuration.proxy_headers = make_headers(proxy_basic_auth=known)


def _is_loopback(host: str) -> bool:
    name = urlsplit(host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
