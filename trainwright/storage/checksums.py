"""SHA-256 and CRC64NVME of data, computed together in the one pass that reads it.

SHA-256 is what manifests, hubs and registries name. CRC64NVME is what S3 computes itself and reports, so that an upload can be
confirmed without reading it back; it costs a twentieth of SHA-256. It needs the package `awscrt` (extra `s3`).
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable

Crc64 = Callable[[bytes, int], int]


class Checksums:
    """The size and the checksums of what `update` was called with."""

    def __init__(self) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._crc64 = crc64_function()
        self._crc = 0

    def update(self, content: bytes) -> None:
        self.size += len(content)
        self._sha256.update(content)
        if self._crc64 is not None:
            self._crc = self._crc64(content, self._crc)

    @property
    def sha256(self) -> str:
        """Hexadecimal."""
        return self._sha256.hexdigest()

    @property
    def crc64nvme(self) -> str:
        """Base64 of the big-endian number, as S3 reports it; empty without the package `awscrt`."""
        return "" if self._crc64 is None else crc64_text(self._crc)


@functools.cache
def crc64_function() -> Crc64 | None:
    """Return `f(content, previous) -> crc`, or None without the package `awscrt`."""
    try:
        from awscrt.checksums import crc64nvme
    except ImportError:
        return None
    function: Crc64 = crc64nvme
    return function


def crc64_text(crc: int) -> str:
    """Return a CRC64NVME as S3 writes it in `x-amz-checksum-crc64nvme`."""
    return base64.b64encode(crc.to_bytes(8, "big")).decode()
