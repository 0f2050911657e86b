"""A store in a bucket of an object store, or below a prefix of one.

Data is transferred by obstore with bounded memory, each file read once, with its CRC64NVME for the store to check. A request is
retried for minutes, but only for seconds until the store has answered once: a wrong address is no outage.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from trainwright.storage.checksums import Checksums
from trainwright.storage.errors import AlreadyExists, NoAccess, NoBucket, NotFound, NotSupported, StorageError, Transient
from trainwright.storage.objects.connection import ObjectConnection, obstore_errors
from trainwright.storage.objects.lease import LEASE_SECONDS, hold_lease
from trainwright.storage.objects.upload_parts import CountedOnce, read_parts
from trainwright.storage.plain_files import ProgressCallback, no_progress, open_plain
from trainwright.storage.store import MAX_SMALL_FILE, Capabilities, FolderNames, Lock, StoredFile, lost_lock_first
from trainwright.storage.transfer import disk_errors, open_new
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
PART = 6 * 1024 * 1024
"""Bytes of a part of a multipart upload, and of the largest file uploaded in one request. S3 requires at least 5 MiB."""
_CONCURRENT_PARTS = 2
"""More would cost memory and, with two files at once, gain nothing."""
_MAX_PARTS = 9_000
_STREAM_CHUNK = 128 * 1024
"""Bytes: larger chunks are put together by copying, and leave the CPU cache before they are hashed."""
_CONTROL = re.compile(r"[\0-\x1f\x7f]")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ListedObject:
    """An object: `name` is relative to the listed URI, `size` is in bytes."""

    name: str
    size: int
    etag: str


class ObjectStore:
    """Implements `Store` for all object stores. Keys outside of the prefix are rejected.

    A version of an object is what the store's conditions name: its ETag, unless a subclass says otherwise.
    """

    never_matches = '"00000000000000000000000000000000"'
    """A version that no object has."""

    def __init__(self, uri: StorageUri, connection: ObjectConnection, *, lease_seconds: float = LEASE_SECONDS):
        self.uri = uri
        self._connection = connection
        self._lease_seconds = lease_seconds

    def below(self, name: str) -> ObjectStore:
        store = copy(self)
        store.uri = self.uri.join(name)
        return store

    def parent(self) -> ObjectStore:
        if not self.uri.key:
            raise StorageError(f"{self.uri} is a whole bucket, which is in no folder")
        store = copy(self)
        store.uri = replace(self.uri, location=self.uri.location.rpartition("/")[0])
        return store

    def check_writable(self) -> None:
        key = f".trainwright-probe-{secrets.token_hex(8)}"
        try:
            self._try_to_write(key)
        finally:
            self.delete(key)

    def version_of(self, shown: Any) -> str:
        """Return the version in what obstore tells of an object, or of a write."""
        return str(shown["e_tag"] or "")

    def condition(self, version: str) -> dict[str, str]:
        """Return the condition that an object has this version, for obstore."""
        return {"e_tag": version}

    def capabilities(self) -> Capabilities:
        """Try them once per bucket and process, with a small object that is then deleted. Raises StorageError."""
        return self._connection.capabilities(self._try_capabilities)

    def put(
        self, source: Path, key: str, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
    ) -> StoredFile:
        path, uri = self._path(key), self.uri.join(key)

        counted = CountedOnce(on_progress)

        def upload() -> StoredFile:
            counted.restart()
            with disk_errors(source), open_plain(source, within) as file:
                return self._upload(file, path, uri, counted.add)

        return self._connection.retry(upload, uri)

    def get(self, key: str, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        with disk_errors(target):
            target.unlink(missing_ok=True)
        with disk_errors(target), open_new(target) as writing:
            return self._stream(key, on_progress, writing.write)

    def head(self, key: str) -> StoredFile | None:
        try:
            return StoredFile(self._get(key, head=True).meta["size"])
        except NotFound:
            return None

    def inspect(self, key: str) -> StoredFile | None:
        return self.head(key)

    def checksums(self, key: str, on_progress: ProgressCallback = no_progress) -> StoredFile:
        return self._stream(key, on_progress, lambda _chunk: None)

    def read(self, key: str) -> bytes:
        return self.read_with_version(key)[0]

    def read_range(self, key: str, start: int, length: int) -> bytes:
        import obstore

        def read() -> bytes:
            with obstore_errors(self.uri.join(key)):
                return bytes(obstore.get_range(self._connection.bucket, self._path(key), start=start, length=length))

        return self._connection.retry(read, self.uri.join(key))

    def create(self, key: str, content: bytes) -> None:
        uri = self.uri.join(key)
        if self.head(key) is not None:  # a store that ignores If-None-Match would overwrite it
            raise AlreadyExists(f"{uri} exists")
        try:
            written = self.put_if(key, content, None)
        except NotSupported:
            return self.replace(key, content)
        if written is None and self.read(key) != content:  # the same content: the answer to our own request was lost
            raise AlreadyExists(f"{uri} exists")

    def replace(self, key: str, content: bytes) -> None:
        self._write(key, content, "overwrite")

    def compare_and_swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        version = None
        if old is not None:
            try:
                content, version = self.read_with_version(key)
            except NotFound:
                return False
            if content != old:
                return False
        elif self.head(key) is not None:
            return False
        try:
            return self.put_if(key, new, version) is not None
        except NotSupported:
            self.replace(key, new)
            return True

    def list_files(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        for each in self._list(prefix):
            yield each.name, each.size

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

    def delete(self, key: str) -> None:
        import obstore

        def delete() -> None:
            with contextlib.suppress(NotFound), obstore_errors(self.uri.join(key)):
                obstore.delete(self._connection.bucket, self._path(key))

        self._connection.retry(delete, self.uri.join(key))

    def sync(self, keys: list[str]) -> None:
        """What an object store has acknowledged is durable."""

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[Lock]:
        """Hold a lease on a hidden object beside the files. Logs a warning if the store does not support leases.

        If the lease is taken over from a holder that was killed, incomplete uploads below this store are aborted.
        """
        lock_key = f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock"
        with contextlib.ExitStack() as stack:
            lease: Lock = NoLease()
            if self.capabilities().conditional_writes:
                holding = hold_lease(LeaseFile(self, lock_key), str(self.uri.join(key)), lease_seconds=self._lease_seconds)
                held = stack.enter_context(holding)
                if held.was_taken_over:
                    self._abort_incomplete_uploads()
                lease = held
            else:
                log.warning(
                    "this store ignores If-None-Match or If-Match, so concurrent exports are not prevented; "
                    "run only one export at a time uri=%s",
                    self.uri.join(key),
                )
            with lost_lock_first(lease):
                yield lease

    def read_with_version(self, key: str) -> tuple[bytes, str]:
        """Return a small file and its version. Raises NotFound, StorageError."""

        def read() -> tuple[bytes, str]:
            found = self._request(key)
            if found.meta["size"] > MAX_SMALL_FILE:
                raise StorageError(f"{self.uri.join(key)} is larger than {MAX_SMALL_FILE} bytes")
            with obstore_errors(self.uri.join(key)):
                return bytes(found.bytes()), self.version_of(found.meta)

        return self._connection.retry(read, self.uri.join(key))

    def put_if(self, key: str, content: bytes, version: str | None) -> str | None:
        """Write if the object has this version (None: if it does not exist). Returns the new version, or None.

        Raises NotSupported, StorageError.
        """
        try:
            return self._write(key, content, "create" if version is None else self.condition(version))
        except (AlreadyExists, NotFound):  # some stores answer 404 to a conditional write of a deleted object
            return None

    def _abort_incomplete_uploads(self) -> None:
        """Abort uploads below this store, which only the caller writes to, where the store lists them."""

    def _checks_uploads(self, key: str) -> bool:
        """Return whether the store refuses an upload with a wrong CRC64NVME. May overwrite the file. Raises StorageError."""
        return False

    def _try_capabilities(self) -> Capabilities:
        key = f".trainwright-probe-{secrets.token_hex(8)}"
        try:
            self._try_to_write(key)
            try:
                conditional = self.put_if(key, b"", None) is None and self.put_if(key, b"", self.never_matches) is None
            except NotSupported:
                conditional = False
            return Capabilities(conditional, self._connection.sends_checksums and self._checks_uploads(key))
        finally:
            self.delete(key)

    def _try_to_write(self, key: str) -> None:
        try:
            self.replace(key, b"probe")
        except (NoAccess, NoBucket, Transient):
            raise
        except StorageError:
            self._connection.send_no_checksums()
            self.replace(key, b"probe")

    def _upload(self, file: BinaryIO, path: str, uri: StorageUri, on_progress: ProgressCallback) -> StoredFile:
        import obstore

        size, seen = file.seek(0, 2), Checksums()
        file.seek(0)
        bucket, options = self._connection.bucket, dict[str, Any](use_multipart=False)
        content: Any
        if size <= PART:
            content = file.read(PART + 1)
            seen.update(content)
        else:
            part = max(PART, -(-size // _MAX_PARTS))
            content = read_parts(file, part, seen, on_progress)
            bucket = self._connection.parts_bucket
            options = {"use_multipart": True, "chunk_size": part, "max_concurrency": _CONCURRENT_PARTS}
        with obstore_errors(uri):
            obstore.put(bucket, path, content, **options)
        if size <= PART:
            on_progress(seen.size)
        return StoredFile(seen.size, seen.sha256, seen.crc64nvme)

    def _write(self, key: str, content: bytes, mode: Any) -> str:
        import obstore

        def write() -> str:
            with obstore_errors(self.uri.join(key)):
                done = obstore.put(self._connection.bucket, self._path(key), content, mode=mode, use_multipart=False)
            return self.version_of(done)

        return self._connection.retry(write, self.uri.join(key))

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

    def _stream(self, key: str, on_progress: ProgressCallback, write: Callable[[bytes], object]) -> StoredFile:
        """Read a file in order; a broken connection goes on where it ended, if the file is still the same."""
        uri, seen = self.uri.join(key), Checksums()
        found = self._get(key)
        size, etag = found.meta["size"], str(found.meta["e_tag"] or "")

        def receive() -> None:
            nonlocal found, size
            if found is None:
                size = self._request(key, head=True).meta["size"]  # the first answer may have been wrong
                if seen.size >= size:
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

    def _path(self, key: str) -> str:
        parts = key.split("/")
        if ".." in parts:
            raise StorageError(f"the key {key!r} is outside of {self.uri}")
        if any(part in ("", ".") for part in parts) or _CONTROL.search(key):
            raise StorageError(f"{key!r} is not a valid key in {self.uri}")
        return f"{self.uri.key}/{key}" if self.uri.key else key


@dataclass
class LeaseFile:
    """The object of a lease, for `hold_lease`."""

    store: ObjectStore
    key: str

    def put_if(self, content: bytes, version: str | None) -> str | None:
        return self.store.put_if(self.key, content, version)

    def read(self) -> tuple[bytes, str] | None:
        try:
            return self.store.read_with_version(self.key)
        except NotFound:
            return None

    def remove(self) -> None:
        self.store.delete(self.key)


class NoLease:
    """Of a store without conditional writes: nothing is locked, so nothing can be lost."""

    def require(self) -> None:
        pass
