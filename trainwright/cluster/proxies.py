"""Proxy settings with kubectl's semantics: the kubeconfig's `proxy-url`, else the environment.

The official Python client supports only the environment, and would use its proxy for loopback addresses, too.
"""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from trainwright.cluster.kubeconfig import check_address


def set_proxy(configuration: Any, url: str) -> None:
    """Set the proxy of a `kubernetes.client.Configuration`, else that of the environment. The password is not part of the URL.

    Raises InvalidKubeconfig for a proxy of the environment that cannot be used.
    """
    if not url:
        if _is_loopback(configuration.host):
            configuration.proxy = None  # a proxy would resolve the loopback address to its own machine
        if not configuration.proxy:
            return
        without = configuration.no_proxy
        check_address(str(configuration.proxy), "the proxy of the environment", ("https", "http", "socks5"), password=True)
        _set(configuration, str(configuration.proxy))
        configuration.no_proxy = without
        return
    _set(configuration, url)


def _set(configuration: Any, url: str) -> None:
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
