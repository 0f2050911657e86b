"""One revision of one object: its JSON, and the parsed object while the record is recent.

Ten thousand finished jobs and their dependents may never be read again. Parsed they would take gigabytes, so old records are
compressed and decompressed on demand.
"""

from __future__ import annotations

import orjson
import zstandard

from trainwright.api.objects import Obj

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""
Labels = tuple[tuple[str, str], ...]
_PACKED_FROM = 512
"""Minimum bytes of compressed JSON; below, compression does not pay."""
_PACKER = zstandard.ZstdCompressor(level=1)


class Record:
    """`object` is shared by all readers: never change it. `data` is its JSON, serialized once for journal, responses and watches.

    `labels` are its indexed labels.
    """

    __slots__ = ("_data", "_is_recent", "_object", "key", "labels", "revision")

    def __init__(self, revision: int, key: Key, data: bytes, obj: Obj | None = None, *, labels: Labels = ()):
        self.revision = revision
        self.key = key
        self.labels = labels
        self._data = data
        self._object = obj
        self._is_recent = True

    @property
    def size(self) -> int:
        """Bytes that the JSON takes in memory, compressed or not."""
        return len(self._data)

    @property
    def data(self) -> bytes:
        data = self._data  # read once: another thread may compress it concurrently
        return data if data[:1] == b"{" else zstandard.decompress(data)

    @property
    def object(self) -> Obj:
        known = self._object
        if known is None:
            known = orjson.loads(self.data)
            if self._is_recent:
                self._object = known
        return known

    def pack(self) -> None:
        """Compress the JSON and drop the parsed object. Not thread-safe, even for different records."""
        self._is_recent, data = False, self._data
        if data[:1] == b"{" and len(data) >= _PACKED_FROM:
            # Copied, because the compressor's result keeps its oversized buffer.
            self._data = bytes(memoryview(_PACKER.compress(data)))
        self._object = None
