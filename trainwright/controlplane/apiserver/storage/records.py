"""One state of one object as the store remembers it: its JSON, and the object as long as it is young.

Ten thousand finished jobs with all that they made are objects that nobody may ever read again. Parsed they would take gigabytes;
packed they take what they are, and are unpacked for who asks.
"""

from __future__ import annotations

import orjson
import zstandard

from trainwright.api.objects import Obj

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped kinds) and name."""
Labels = tuple[tuple[str, str], ...]
_PACKED_FROM = 512
"""Bytes; less is not worth packing."""
_PACKER = zstandard.ZstdCompressor(level=1)


class Record:
    """`object` is shared by everybody who reads: never change it. `data` is its JSON, made once for journal, answers, watches.

    `labels` are those that the store finds it by.
    """

    __slots__ = ("_data", "_is_young", "_object", "key", "labels", "revision")

    def __init__(self, revision: int, key: Key, data: bytes, obj: Obj | None = None, *, labels: Labels = ()):
        self.revision = revision
        self.key = key
        self.labels = labels
        self._data = data
        self._object = obj
        self._is_young = True

    @property
    def data(self) -> bytes:
        data = self._data  # read once: another thread may be packing
        return data if data[:1] == b"{" else zstandard.decompress(data)

    @property
    def object(self) -> Obj:
        known = self._object
        if known is None:
            known = orjson.loads(self.data)
            if self._is_young:
                self._object = known
        return known

    def pack(self) -> None:
        """Keep no more than needed to give everything back. One thread at a time, for all records together."""
        self._is_young, data = False, self._data
        if data[:1] == b"{" and len(data) >= _PACKED_FROM:
            # A copy: what comes from there keeps the room that it might have needed.
            self._data = bytes(memoryview(_PACKER.compress(data)))
        self._object = None
