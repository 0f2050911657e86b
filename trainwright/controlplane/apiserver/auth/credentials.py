"""Creates and renews the credentials of an embedded cluster: CA, certificate, admin token, signing key, kubeconfig.

Files are readable only by their owner and are written atomically.
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

from trainwright.api.yaml_writer import to_yaml
from trainwright.controlplane.apiserver.auth.authority import (
    KeyPair,
    is_valid,
    new_authority,
    new_server_certificate,
)

CONTEXT = "trainwright"
SUCCESSOR_OVERLAP = timedelta(days=365)
"""How long before its expiry an authority is published together with its successor, so that new clients trust both."""
_CERTIFICATE, _KEY, _TOKEN, _SIGNING_KEY = "tls.crt", "tls.key", "admin.token", "signing.key"
_AUTHORITY, _AUTHORITY_KEY, _NEXT, _NEXT_KEY, _TRUSTED = "ca.crt", "ca.key", "ca-next.crt", "ca-next.key", "trusted.crt"


@dataclass(frozen=True)
class Credentials:
    """The TLS files of a server and the secrets for authenticating clients."""

    certificate: Path
    key: Path
    authority: Path
    """The CA bundle for clients."""
    admin_token: str = field(repr=False)
    signing_key: bytes = field(repr=False)


def load_credentials(home: Path, *, now: datetime | None = None) -> Credentials:
    """Load the credentials in `home`; create missing ones and renew those that expire soon, including the authority.

    A certificate and its key are always created and written together.
    """
    now = now or datetime.now(UTC)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    authority = _renewed_authority(home, now)
    successor = _read_pair(home, _NEXT, _NEXT_KEY)
    trusted = authority.certificate + (successor.certificate if successor else b"")
    if _read_if_exists(home / _TRUSTED) != trusted:
        write_private(home / _TRUSTED, trusted)
    renew_certificate(home, now)
    token = _load_or_create(home / _TOKEN, lambda: secrets.token_urlsafe(32).encode())
    signing_key = _load_or_create(home / _SIGNING_KEY, lambda: secrets.token_bytes(32))
    for path in home.iterdir():
        path.chmod(0o600)
    return Credentials(home / _CERTIFICATE, home / _KEY, home / _TRUSTED, token.decode(), signing_key)


def renew_certificate(home: Path, now: datetime) -> bool:
    """Renew the server certificate if it is missing, invalid or expires soon; returns whether it was renewed."""
    authority = _read_pair(home, _AUTHORITY, _AUTHORITY_KEY)
    present = _read_pair(home, _CERTIFICATE, _KEY)
    if authority is None or (is_valid(present, now, issuer=authority) and present != authority):
        return False
    _write_pair(home, new_server_certificate(authority, now), _CERTIFICATE, _KEY)
    return True


def _renewed_authority(home: Path, now: datetime) -> KeyPair:
    """The signing authority, renewed if necessary; creates its successor in time."""
    authority = _read_pair(home, _AUTHORITY, _AUTHORITY_KEY)
    if authority is None or not is_valid(authority, now):
        successor = _read_pair(home, _NEXT, _NEXT_KEY)
        authority = successor if successor is not None and is_valid(successor, now) else new_authority(now)
        _write_pair(home, authority, _AUTHORITY, _AUTHORITY_KEY)
        for name in (_NEXT, _NEXT_KEY):
            (home / name).unlink(missing_ok=True)
    if not is_valid(authority, now, before=SUCCESSOR_OVERLAP) and not is_valid(_read_pair(home, _NEXT, _NEXT_KEY), now):
        _write_pair(home, new_authority(now), _NEXT, _NEXT_KEY)
    return authority


def _read_pair(home: Path, certificate: str, key: str) -> KeyPair | None:
    contents = _read_if_exists(home / certificate), _read_if_exists(home / key)
    return KeyPair(*contents) if all(contents) else None


def _write_pair(home: Path, pair: KeyPair, certificate: str, key: str) -> None:
    # The key first: if the certificate exists, so does its key.
    write_private(home / key, pair.key)
    write_private(home / certificate, pair.certificate)


def _read_if_exists(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def write_kubeconfig(path: Path, server: str, credentials: Credentials, namespace: str = "default") -> None:
    """Write a kubeconfig for the server URL, readable only by its owner."""
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
    write_private(path, to_yaml(config).encode())


def write_private(path: Path, content: bytes) -> None:
    """Atomically write a file that only its owner can read."""
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


def _load_or_create(path: Path, make: Callable[[], bytes]) -> bytes:
    content = _read_if_exists(path)
    if not content:
        content = make()
        write_private(path, content)
    return content
