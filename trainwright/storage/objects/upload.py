"""Uploading a file of any size to an object store.

It is read once, with bounded memory, and its CRC64NVME is sent along for the store to check.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainwright.storage.checksums import Checksums
from trainwright.storage.objects.connection import ObjectConnection, obstore_errors
from trainwright.storage.plain_files import ProgressCallback, open_plain
from trainwright.storage.store import StoredFile
from trainwright.storage.transfer import chunks_of, disk_errors
from trainwright.storage.uri import StorageUri

PART = 6 * 1024 * 1024
"""Bytes of a part of a multipart upload, and of the largest file uploaded in one request. S3 requires at least 5 MiB."""
_CONCURRENT_PARTS = 2
"""More would cost memory and, with two files at once, gain nothing."""
_MAX_PARTS = 9_000
"""S3 allows 10,000."""


def upload_file(
    connection: ObjectConnection, source: Path, path: str, uri: StorageUri, on_progress: ProgressCallback, within: Path | None
) -> StoredFile:
    """Upload a local regular file, none outside of the folder `within`, to `path` in the bucket, as `Store.put` does.

    Args:
        connection: The bucket.
        source: The local file.
        path: The whole name of the object.
        uri: The object, for messages.
        on_progress: Called with numbers of bytes; an upload that is repeated reports none of them twice.
        within: A folder that the file must be in.
    """
    counted = _CountedOnce(on_progress)

    def upload() -> StoredFile:
        counted.restart()
        with disk_errors(source), open_plain(source, within) as file:
            return _send(connection, file, path, uri, counted.add)

    return connection.retry(upload, uri)


def _send(connection: ObjectConnection, file: BinaryIO, path: str, uri: StorageUri, on_progress: ProgressCallback) -> StoredFile:
    import obstore

    size, seen = file.seek(0, 2), Checksums()
    file.seek(0)
    if size <= PART:
        content = file.read(PART + 1)
        seen.update(content)
        with obstore_errors(uri):
            obstore.put(connection.bucket, path, content, use_multipart=False)
        on_progress(seen.size)
    else:
        part = max(PART, -(-size // _MAX_PARTS))
        with obstore_errors(uri):
            obstore.put(
                connection.parts_bucket,
                path,
                _read_parts(file, part, seen, on_progress),
                use_multipart=True,
                chunk_size=part,
                max_concurrency=_CONCURRENT_PARTS,
            )
    return StoredFile(seen.size, seen.sha256, seen.crc64nvme)


def _read_parts(file: BinaryIO, part: int, seen: Checksums, on_progress: ProgressCallback) -> Iterator[bytes]:
    """Yield the contents in parts of `part` bytes, each added to `seen`, and reported when the next one is asked for."""
    for chunk in chunks_of(file, part):
        seen.update(chunk)
        yield chunk
        on_progress(len(chunk))


class _CountedOnce:
    """Reports the progress of an upload that may be repeated from its beginning."""

    def __init__(self, on_progress: ProgressCallback):
        self._on_progress = on_progress
        self._reported = self._sent = 0

    def restart(self) -> None:
        self._sent = 0

    def add(self, count: int) -> None:
        self._sent += count
        new = max(0, self._sent - self._reported)
        self._reported += new
        self._on_progress(new)
