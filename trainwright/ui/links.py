"""One-time links to the page: a code that the owner of a key makes, and that the server accepts once, for a limited time.

The code is in the fragment of the address, which browsers do not send to servers. It is exchanged for a session.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
import threading
import time
from collections.abc import Callable

LINK_SECONDS = 3600
"""For which a link that nobody has opened stays valid."""
_KEY_BYTES, _NONCE_BYTES, _DIGEST_BYTES = 32, 16, 32
_EXPIRY = struct.Struct(">Q")
_MAX_CODE = 200


class LinkRefused(Exception):
    """A code was not made with the key of this server, has expired, or was used before."""


def make_code(key: bytes, *, seconds: float = LINK_SECONDS, clock: Callable[[], float] = time.time) -> str:
    """Return a new code. Whoever has the key can make codes: only the owner of the page."""
    content = _EXPIRY.pack(int(clock() + seconds)) + secrets.token_bytes(_NONCE_BYTES)
    return base64.urlsafe_b64encode(content + _digest(key, content)).rstrip(b"=").decode("ascii")


def new_key() -> bytes:
    return secrets.token_bytes(_KEY_BYTES)


class Links:
    """The codes of one server. Thread-safe."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time.time):
        self._key, self._clock = key, clock
        self._used: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def make(self) -> str:
        """Return a new code."""
        return make_code(self._key, clock=self._clock)

    def redeem(self, code: str) -> None:
        """Accept a code. Raises LinkRefused if it is not valid, or was accepted before."""
        try:
            if len(code) > _MAX_CODE:
                raise ValueError
            raw = base64.urlsafe_b64decode(code.encode("ascii") + b"=" * (-len(code) % 4))
        except (ValueError, binascii.Error):  # UnicodeEncodeError is a ValueError
            raise LinkRefused("the link is not valid") from None
        content, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
        is_whole = len(content) == _EXPIRY.size + _NONCE_BYTES
        if not is_whole or not hmac.compare_digest(digest, _digest(self._key, content)):
            raise LinkRefused("the link is not valid")
        expires = int(_EXPIRY.unpack(content[: _EXPIRY.size])[0])
        now = self._clock()
        if expires <= now:
            raise LinkRefused("the link has expired")
        with self._lock:
            self._used = {used: until for used, until in self._used.items() if until > now}
            if content in self._used:
                raise LinkRefused("the link was used before")
            self._used[content] = expires


def _digest(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()
