"""Reading objects in a bucket, or below a prefix of one: all that the initializers, and readers of exports, need.

A file is read with bounded memory, once, and a broken connection continues where it ended. A request is retried for minutes, but only
for seconds until the store has answered once, since its address may be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from trainwright.storage.checksums import Checksums
from trainwright.storage.errors import NotFound, StorageError, Transient
from trainwright.storage.objects.connection import ObjectConnection, obstore_errors
from trainwright.storage.plain_files import ProgressCallback, no_progress
from trainwright.storage.store import MAX_SMALL_FILE, FolderNames, StoredFile
from trainwright.storage.transfer import disk_errors, open_new
from trainwright.storage.uri import StorageUri

_STREAM_CHUNK = 128 * 1024
"""Bytes: larger chunks are put together by copying, and leave the CPU cache before they are hashed."""
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


@dataclass(frozen=True)
class ListedObject:
    """An object: `name` is relative to the listed URI, `size` is in bytes."""

    name: str
    size: int
    etag: str


class ObjectReader:
    """Reads objects below a URI. Keys outside of the prefix are rejected."""

    def __init__(self, uri: StorageUri, connection: ObjectConnection):
        self.uri = uri
        self._connection = connection

    def below(self, name: str) -> Self:
        store = copy(self)
        store.uri = self.uri.join(name)
        return store

    def parent(self) -> Self:
        if not self.uri.key:
            raise StorageError(f"{self.uri} is a whole bucket, which is in no folder")
        store = copy(self)
        store.uri = replace(self.uri, location=self.uri.location.rpartition("/")[0])
        return store

    def head(self, key: str) -> StoredFile | None:
        try:
            return StoredFile(self._get(key, head=True).meta["size"])
        except NotFound:
            return None

    def inspect(self, key: str) -> StoredFile | None:
        return self.head(key)

    def get(self, key: str, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        with disk_errors(target):
            target.unlink(missing_ok=True)
        with disk_errors(target), open_new(target) as writing:
            return self._stream(key, on_progress, writing.write)

    def checksums(self, key: str, on_progress: ProgressCallback = no_progress) -> StoredFile:
        return self._stream(key, on_progress, lambda _chunk: None)

    def _stream(self, key: str, on_progress: ProgressCallback, write: Callable[[bytes], object]) -> StoredFile:
        """Read a file in order; a broken connection goes on where it ended, if the file is still the same."""
        uri, seen = self.uri.join(key), Checksums()
        found = self._get(key)
        size, etag = found.meta["size"], str(found.meta["e_tag"] or "")

        def receive() -> None:
            nonlocal found, size
            if found is None:
                size = self._request(key, head=True).meta["size"]  # the first answer may have been wrong
                if seen.size >= size:  # all has arrived before the connection broke
                    return
                found = self._request(key, start=seen.size, etag=etag)
            try:
                chunks = iter(found.stream(min_chunk_size=_STREAM_CHUNK))
                while True:
                    with obstore_errors(uri):
                        chunk = next(chunks, None)
                    if chunk is None:
                        break
                    seen.update(chunk)
                    write(chunk)
                    self._connection.note_success()
                    on_progress(len(chunk))
            finally:
                found = None
            if seen.size < size:
                raise Transient(f"{uri}: received {seen.size} of {size} bytes; try again")

        if size:
            self._connection.retry(receive, uri)
        if seen.size != size:
            raise StorageError(f"{uri}: received {seen.size} of {size} bytes; try again")
        return StoredFile(seen.size, seen.sha256, seen.crc64nvme)

    def read(self, key: str) -> bytes:
        return self.read_with_version(key)[0]

    def read_with_version(self, key: str) -> tuple[bytes, str]:
        """Return a small file and its version. Raises NotFound, StorageError."""

        def read() -> tuple[bytes, str]:
            found = self._request(key)
            if found.meta["size"] > MAX_SMALL_FILE:
                raise StorageError(f"{self.uri.join(key)} is larger than {MAX_SMALL_FILE} bytes")
            with obstore_errors(self.uri.join(key)):
                return bytes(found.bytes()), self.version_of(found.meta)

        return self._connection.retry(read, self.uri.join(key))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        import obstore

        def read() -> bytes:
            with obstore_errors(self.uri.join(key)):
                return bytes(obstore.get_range(self._connection.bucket, self._path(key), start=start, length=length))

        return self._connection.retry(read, self.uri.join(key))

    def _get(self, key: str, *, head: bool = False) -> Any:
        return self._connection.retry(lambda: self._request(key, head=head), self.uri.join(key))

    def _request(self, key: str, *, head: bool = False, start: int = 0, etag: str = "") -> Any:
        """Begin to read a file, without retries. `start` is in bytes; with `etag`, only if the file still has it."""
        import obstore

        options: Any = {"head": head}
        if start:
            options["range"] = {"offset": start}
        if etag:
            options["if_match"] = etag
        with obstore_errors(self.uri.join(key)):
            return obstore.get(self._connection.bucket, self._path(key), options=options)

    def list_files(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        for each in self._list(prefix):
            yield each.name, each.size

    def list_objects(self) -> list[ListedObject]:
        """Return all objects, sorted by name, without folder placeholders. Raises StorageError."""
        return sorted((each for each in self._list("") if not each.name.endswith("/")), key=lambda each: each.name)

    def stat(self, key: str) -> ListedObject:
        """Return size and ETag of a file. Raises NotFound."""
        found = self._get(key, head=True)
        return ListedObject(key, found.meta["size"], str(found.meta["e_tag"] or ""))

    def _list(self, prefix: str) -> list[ListedObject]:
        import obstore

        own = f"{self.uri.key}/" if self.uri.key else ""
        root = f"{self._path(prefix)}/" if prefix else own

        def read() -> list[ListedObject]:
            with obstore_errors(self.uri):
                return [
                    ListedObject(each["path"].removeprefix(own), each["size"], str(each["e_tag"] or ""))
                    for batch in obstore.list(self._connection.bucket, root)
                    for each in batch
                ]

        return self._connection.retry(read, self.uri)

    def list_folder(self, limit: int) -> FolderNames:
        import obstore

        own = f"{self.uri.key}/" if self.uri.key else ""

        def read() -> tuple[list[str], dict[str, int]]:
            with obstore_errors(self.uri):
                found = obstore.list_with_delimiter(self._connection.bucket, own)
            folders = [path.removeprefix(own).rstrip("/") for path in found["common_prefixes"]]
            files = {each["path"].removeprefix(own): each["size"] for each in found["objects"]}
            return folders, files

        folders, files = self._connection.retry(read, self.uri)
        kept = sorted((*folders, *files))[:limit]
        return FolderNames(
            tuple(name for name in kept if name not in files),
            {name: files[name] for name in kept if name in files},
            is_cut=len(folders) + len(files) > limit,
        )

    def version_of(self, shown: Any) -> str:
        """Return what names a state of an object in conditions, out of an answer of obstore: its ETag, unless a subclass differs."""
        return str(shown["e_tag"] or "")

    def _path(self, key: str) -> str:
        parts = key.split("/")
        if ".." in parts:
            raise StorageError(f"the key {key!r} is outside of {self.uri}")
        if any(part in ("", ".") for part in parts) or _CONTROL.search(key):
            raise StorageError(f"{key!r} is not a valid key in {self.uri}")
        return f"{self.uri.key}/{key}" if self.uri.key else key
