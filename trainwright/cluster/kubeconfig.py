"""Checks kubeconfigs before the official client reads them, and its configuration before any request is sent.

The client passes addresses, tokens and keys on unchecked: HTTP libraries then print them whole in their errors. It takes proxies from
the environment alone, for loopback addresses too, where kubectl takes `proxy-url` first. If a credential plugin fails, it only logs
that, with the plugin's output and perhaps a token, and sends anonymous requests. No message here contains a value, except for names.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from trainwright.api.objects import Obj
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import MAX_BYTES, Unreadable, too_large
from trainwright.text.yaml_reader import read_yaml

_PEM_FIELDS = ("certificate-authority-data", "client-certificate-data", "client-key-data")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)?")
"""Scheme and token."""
_LOGGING_MODULES = ("kube_config", "exec_provider")
"""Those of the official client that log the failure of a credential plugin."""
_PLUGIN_EXIT = re.compile(r"exec: process returned (-?[0-9]+)")


class InvalidKubeconfig(ValueError):
    """A kubeconfig cannot be used; the message names the field, but no credentials."""


def read_kubeconfigs(files: Iterable[str]) -> list[Obj]:
    """Return the content of kubeconfigs whose addresses and keys can be used. Raises InvalidKubeconfig, OSError."""
    return [_read(Path(name).expanduser(), name) for name in files]


def exists(name: str) -> bool:
    """Whether a file can be read; false for a path that is none."""
    try:
        with Path(name).expanduser().open("rb"):
            return True
    except (OSError, RuntimeError, ValueError):  # also `~` of nobody, or a null character
        return False


def proxy_of(contents: Iterable[Obj], cluster: str) -> str:
    """Return the `proxy-url` of a cluster, from the first of these kubeconfigs that contains the cluster; empty if it has none."""
    for content in contents:
        for name, entry in _entries(content, "clusters", "cluster"):
            if name == cluster:
                return str(entry.get("proxy-url") or "")
    return ""


def user_of(contents: Iterable[Obj], user: str) -> Obj:
    """Return the entry of a user, from the first of these kubeconfigs that contains it."""
    return next((entry for content in contents for name, entry in _entries(content, "users", "user") if name == user), {})


def check_address(text: str, what: str, schemes: tuple[str, ...], *, password: bool = False) -> None:
    """Check a URL. Raises InvalidKubeconfig if a client could not use it, or if it contains a password and must not."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise InvalidKubeconfig(f"{what}: not a valid URL") from None
    if not usable or not text.isprintable() or " " in text:
        raise InvalidKubeconfig(f"{what}: not a valid URL; expected {' or '.join(f'{scheme}://HOST' for scheme in schemes)}")
    if not password and "@" in parts.netloc:
        raise InvalidKubeconfig(f"{what}: contains a user name or password; set username and password of the user instead")
    if any(not part or len(part) > 63 for part in (parts.hostname or "").rstrip(".").split(".")):
        raise InvalidKubeconfig(f"{what}: not a valid host name")


def check_configuration(configuration: Any) -> None:
    """Check address and token of a `kubernetes.client.Configuration`; removes space around the token, as kubectl does.

    An empty token, which is what a token file holds while it is being written, is removed: it would make requests anonymous.
    Raises InvalidKubeconfig.
    """
    check_address(str(configuration.host), "server", ("https", "http"))
    for name, value in list(configuration.api_key.items()):
        scheme, _, token = str(value).strip().partition(" ")
        if scheme.lower() in ("", "bearer") and not token:
            del configuration.api_key[name]
            continue
        stripped = f"{scheme} {token.strip()}" if token else scheme
        if not _HEADER_VALUE.fullmatch(stripped):
            raise InvalidKubeconfig("the token contains characters that no token has, such as a line break")
        configuration.api_key[name] = stripped


def _read(path: Path, name: str) -> Obj:
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidKubeconfig(too_large(name).message)
    try:
        content = next(iter(read_yaml(data)), None) or {}
    except Unreadable as error:  # without its text, which may quote a part of a token
        where = f"line {error.line}" if error.line else "it"
        raise InvalidKubeconfig(f"{where} is not YAML{'' if error.problem.startswith('not') else f' ({_kind(error)})'}") from None
    if not isinstance(content, dict):
        raise InvalidKubeconfig("it is not a valid kubeconfig")
    for cluster, entry in _entries(content, "clusters", "cluster"):
        where = f"cluster {cluster!r}"
        if entry.get("server"):
            check_address(str(entry["server"]), f"{where}: server", ("https", "http"))
        if entry.get("proxy-url"):
            check_address(str(entry["proxy-url"]), f"{where}: proxy-url", ("https", "http", "socks5"), password=True)
        _check_data(entry, where)
    for user, entry in _entries(content, "users", "user"):
        _check_data(entry, f"user {user!r}")
    return content


def _kind(error: Unreadable) -> str:
    return (
        "duplicate key" if "duplicate" in error.problem else "nested too deeply" if "levels" in error.problem else "unusual value"
    )


def _entries(content: Obj, plural: str, singular: str) -> Iterator[tuple[str, Obj]]:
    """Yield the named entries of a kubeconfig that have the expected form; the client reports others."""
    entries = content.get(plural)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get(singular), dict):
            yield str(entry.get("name")), entry[singular]


def _check_data(entry: Obj, where: str) -> None:
    for field in _PEM_FIELDS:
        if value := entry.get(field):
            try:
                content = base64.b64decode(str(value).encode())
            except (binascii.Error, ValueError):
                raise InvalidKubeconfig(f"{where}: {field}: not valid base64") from None
            if b"-----BEGIN " not in content:
                raise InvalidKubeconfig(f"{where}: {field}: not a certificate or key in PEM form")


def set_proxy(configuration: Any, url: str) -> None:
    """Set the proxy of a `kubernetes.client.Configuration`: `url`, else that of the environment. The password is not part of the URL.

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


class PluginWatch(logging.Filter):
    """Keeps the client's log of failed plugins to itself, for the thread that reads a kubeconfig."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self.reasons: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if record.module not in _LOGGING_MODULES or record.thread != self._thread:  # of another part of the program
            return True
        self.reasons.append(_reason(record.getMessage()))
        return False


@contextmanager
def plugin_watch() -> Iterator[PluginWatch]:
    """Watch for failures in a block that reads a kubeconfig, or renews its token."""
    watch, root = PluginWatch(), logging.getLogger()
    root.addFilter(watch)
    try:
        yield watch
    finally:
        root.removeFilter(watch)


def plugin_failure(user: dict[str, Any], configuration: Any, watch: PluginWatch) -> str | None:
    """Return why the user of a kubeconfig has no credentials although it has a plugin; None if it has some, or no plugin."""
    plugin = user.get("exec")
    if not isinstance(plugin, dict) or configuration.api_key or configuration.cert_file:
        return None
    reason = watch.reasons[0] if watch.reasons else "returned no credentials"
    return f"the credential plugin {one_line(plugin.get('command'))!r} {reason}"


def _reason(message: str) -> str:
    if found := _PLUGIN_EXIT.match(message):
        return f"failed with exit code {found[1]}"
    if "No such file" in message:
        return "is not installed"
    if "Permission denied" in message:
        return "cannot be executed"
    return "returned no valid credentials"
