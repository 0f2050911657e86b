"""The secrets of an embedded cluster, made once and kept in its home: authority, certificate, admin token, signing key, kubeconfig.

Every file is the owner's alone and appears whole or not at all.
"""

from __future__ import annotations

import base64
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from trainwright.controlplane.apiserver.auth.authority import Pair, is_authority, lasts, new_authority, server_pair

CONTEXT = "trainwright"
HANDOVER = timedelta(days=365)
"""How long before its end an authority is handed out together with its successor: who starts meanwhile trusts both."""
_CERTIFICATE, _KEY, _TOKEN, _SIGNING_KEY = "tls.crt", "tls.key", "admin.token", "signing.key"
_AUTHORITY, _AUTHORITY_KEY, _NEXT, _NEXT_KEY, _TRUSTED = "ca.crt", "ca.key", "ca-next.crt", "ca-next.key", "trusted.crt"


@dataclass(frozen=True)
class Credentials:
    """What a server needs to prove itself, and to know who asks."""

    certificate: Path
    key: Path
    authority: Path
    """The certificates that clients trust."""
    admin_token: str = field(repr=False)
    signing_key: bytes = field(repr=False)


def load_credentials(home: Path, *, now: datetime | None = None) -> Credentials:
    """The credentials below `home`; what is missing is made, what soon expires is renewed, the authority too.

    A certificate and its key stay together: both are made, and written, together.
    """
    now = now or datetime.now(UTC)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    authority = _renewed_authority(home, now)
    successor = _pair(home, _NEXT, _NEXT_KEY)
    trusted = authority.certificate + (successor.certificate if successor else b"")
    if _content(home / _TRUSTED) != trusted:
        write_private(home / _TRUSTED, trusted)
    renew_certificate(home, now)
    token = _kept(home / _TOKEN, lambda: secrets.token_urlsafe(32).encode())
    signing_key = _kept(home / _SIGNING_KEY, lambda: secrets.token_bytes(32))
    for path in home.iterdir():
        path.chmod(0o600)
    return Credentials(home / _CERTIFICATE, home / _KEY, home / _TRUSTED, token.decode(), signing_key)


def renew_certificate(home: Path, now: datetime) -> bool:
    """Sign a new server certificate where there is none that will do; returns whether that was so."""
    authority = _pair(home, _AUTHORITY, _AUTHORITY_KEY)
    present = _pair(home, _CERTIFICATE, _KEY)
    if authority is None or (lasts(present, now, issuer=authority) and present != authority):
        return False
    _keep(home, server_pair(authority, now), _CERTIFICATE, _KEY)
    return True


def _renewed_authority(home: Path, now: datetime) -> Pair:
    """The authority that signs, with its successor beside it when it is time for one."""
    authority = _pair(home, _AUTHORITY, _AUTHORITY_KEY) or _earlier(home, now)
    if authority is None or not lasts(authority, now):
        successor = _pair(home, _NEXT, _NEXT_KEY)
        authority = successor if successor is not None and lasts(successor, now) else new_authority(now)
        _keep(home, authority, _AUTHORITY, _AUTHORITY_KEY)
        for name in (_NEXT, _NEXT_KEY):
            (home / name).unlink(missing_ok=True)
    if not lasts(authority, now, before=HANDOVER) and not lasts(_pair(home, _NEXT, _NEXT_KEY), now):
        _keep(home, new_authority(now), _NEXT, _NEXT_KEY)
    return authority


def _earlier(home: Path, now: datetime) -> Pair | None:
    """The certificate of a home that an earlier version made: its own authority, which its clients and pods trust already."""
    pair = _pair(home, _CERTIFICATE, _KEY)
    if pair is None or not lasts(pair, now) or not is_authority(pair):
        return None
    _keep(home, pair, _AUTHORITY, _AUTHORITY_KEY)
    return pair


def _pair(home: Path, certificate: str, key: str) -> Pair | None:
    contents = _content(home / certificate), _content(home / key)
    return Pair(*contents) if all(contents) else None


def _keep(home: Path, pair: Pair, certificate: str, key: str) -> None:
    # The key first: a certificate in place means that its key is there too.
    write_private(home / key, pair.key)
    write_private(home / certificate, pair.certificate)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def write_kubeconfig(path: Path, server: str, credentials: Credentials, namespace: str = "default") -> None:
    """A kubeconfig for the server at that URL, for this user's eyes only."""
    authority = base64.b64encode(credentials.authority.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": CONTEXT, "user": {"token": credentials.admin_token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}}],
    }
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, in one step: a reader finds the old content or the new."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _kept(path: Path, make: Callable[[], bytes]) -> bytes:
    content = _content(path)
    if not content:
        content = make()
        write_private(path, content)
    return content
