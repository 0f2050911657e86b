"""A store in an S3 bucket, or below a prefix of one.

Data is transferred by obstore (bounded memory, retries). Every object has its SHA-256 as metadata, so that an interrupted
export can resume without reading what was uploaded; a verification reads the contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.storage.atomic_file import atomic_write
from trainwright.storage.digests import CHUNK, ProgressCallback, file_digest, no_progress
from trainwright.storage.errors import AlreadyExists, ChecksumMismatch, NotFound, NotSupported, StorageError
from trainwright.storage.plain_files import open_plain
from trainwright.storage.s3_errors import obstore_errors
from trainwright.storage.s3_incomplete_uploads import abort_incomplete_uploads
from trainwright.storage.s3_lease import LEASE_SECONDS, hold_lease
from trainwright.storage.s3_listing import ListedObject
from trainwright.storage.s3_settings import S3Settings
from trainwright.storage.store import MAX_SMALL_FILE, StoredFile
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri

log = logging.getLogger(__name__)
PART = 8 * 1024 * 1024
"""Bytes of a part of a multipart upload, and of the largest file uploaded in one request. S3 requires at least 5 MiB."""
_CONCURRENT_PARTS = 4
_MAX_PARTS = 9_000
_SHA256 = "sha256"
_NO_ETAG = '"00000000000000000000000000000000"'
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


class S3Store:
    """Implements `Store`. Keys outside of the prefix are rejected."""

    def __init__(self, uri: StorageUri, settings: S3Settings | None = None, *, lease_seconds: float = LEASE_SECONDS):
        self.uri = uri
        self._settings = settings or S3Settings.from_environment()
        self._bucket: Any = self._settings.store(uri)
        self._lease_seconds = lease_seconds

    def below(self, name: str) -> S3Store:
        store = copy(self)
        store.uri = self.uri.join(name)
        return store

    def put(
        self, source: Path, key: str, on_progress: ProgressCallback = no_progress, *, within: Path | None = None
    ) -> StoredFile:
        import obstore

        path, uri = self._path(key), self.uri.join(key)
        with disk_errors(source), open_plain(source, within) as file:
            size = file.seek(0, 2)
            file.seek(0)
            # Metadata is sent before the contents, so the digest must be known first: a large file is read twice.
            claim = file_digest(source, within=within) if size > PART else ""
            if size <= PART:
                content = file.read(PART + 1)
                claim = hashlib.sha256(content).hexdigest()
                with obstore_errors(uri):
                    obstore.put(self._bucket, path, content, attributes={_SHA256: claim}, use_multipart=False)
                on_progress(len(content))
                return StoredFile(len(content), claim)
            part = max(PART, -(-size // _MAX_PARTS))
            parts = _VerifiedParts(file, part, on_progress, claim, source)
            with obstore_errors(uri):
                obstore.put(
                    self._bucket,
                    path,
                    iter(parts),
                    attributes={_SHA256: claim},
                    use_multipart=True,
                    chunk_size=part,
                    max_concurrency=_CONCURRENT_PARTS,
                )
        return StoredFile(parts.size, claim)

    def get(self, key: str, target: Path, on_progress: ProgressCallback = no_progress) -> StoredFile:
        with disk_errors(target), atomic_write(target) as writing:
            return self._stream(key, on_progress, writing.write, check=True)

    def head(self, key: str) -> StoredFile | None:
        try:
            found = self._get(key, head=True)
        except NotFound:
            return None
        return StoredFile(found.meta["size"], _recorded_digest(found))

    def stat(self, key: str) -> ListedObject:
        """Return size and ETag of a file. Raises NotFound."""
        found = self._get(key, head=True)
        return ListedObject(key, found.meta["size"], str(found.meta["e_tag"] or ""))

    def digest(self, key: str, on_progress: ProgressCallback = no_progress) -> str:
        return self._stream(key, on_progress, lambda _chunk: None, check=False).sha256

    def read(self, key: str) -> bytes:
        return self._read_with_etag(key)[0]

    def create(self, key: str, content: bytes) -> None:
        uri = self.uri.join(key)
        if self.head(key) is not None:  # a store that ignores If-None-Match would overwrite it
            raise AlreadyExists(f"{uri} exists")
        try:
            written = self._put_if(key, content, None)
        except NotSupported:
            return self.replace(key, content)
        if written is None:
            raise AlreadyExists(f"{uri} exists")

    def replace(self, key: str, content: bytes) -> None:
        self._write(key, content, "overwrite")

    def compare_and_swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        etag = None
        if old is not None:
            try:
                content, etag = self._read_with_etag(key)
            except NotFound:
                return False
            if content != old:
                return False
        elif self.head(key) is not None:
            return False
        try:
            return self._put_if(key, new, etag) is not None
        except NotSupported:
            self.replace(key, new)
            return True

    def delete(self, key: str) -> None:
        """Remove a file. A missing file is not an error."""
        import obstore

        with contextlib.suppress(NotFound), obstore_errors(self.uri.join(key)):
            obstore.delete(self._bucket, self._path(key))

    def supports_conditional_writes(self, key: str) -> bool:
        try:
            self.replace(key, b"probe")
            return self._put_if(key, b"", None) is None and self._put_if(key, b"", _NO_ETAG) is None
        except NotSupported:
            return False
        finally:
            self.delete(key)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold a lease on a hidden object beside the files. Logs a warning if the store does not support leases.

        Aborts incomplete uploads of an earlier holder that was killed.
        """
        lock_key = f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock"
        with contextlib.ExitStack() as stack:
            try:
                is_enforced = stack.enter_context(
                    hold_lease(_LeaseObject(self, lock_key), str(self.uri.join(key)), lease_seconds=self._lease_seconds)
                )
            except NotSupported:
                is_enforced = False
            if not is_enforced:
                log.warning(
                    "this store ignores If-None-Match or If-Match, so concurrent exports are not prevented; "
                    "run only one export at a time uri=%s",
                    self.uri.join(key),
                )
            else:  # no other process writes here now, so incomplete uploads belong to killed processes
                abort_incomplete_uploads(self._settings.boto3_client(), self.uri.join(key))
            yield

    def _read_with_etag(self, key: str) -> tuple[bytes, str]:
        found = self._get(key)
        if found.meta["size"] > MAX_SMALL_FILE:
            raise StorageError(f"{self.uri.join(key)} is larger than {MAX_SMALL_FILE} bytes")
        with obstore_errors(self.uri.join(key)):
            return bytes(found.bytes()), str(found.meta["e_tag"] or "")

    def _put_if(self, key: str, content: bytes, etag: str | None) -> str | None:
        """Write if the object has this ETag (None: if it does not exist). Returns the new ETag, or None. Raises NotSupported."""
        try:
            return self._write(key, content, "create" if etag is None else {"e_tag": etag})
        except (AlreadyExists, NotFound):  # some stores answer 404 to a conditional write of a deleted object
            return None

    def _write(self, key: str, content: bytes, mode: Any) -> str:
        import obstore

        claim = hashlib.sha256(content).hexdigest()
        with obstore_errors(self.uri.join(key)):
            done = obstore.put(
                self._bucket, self._path(key), content, mode=mode, attributes={_SHA256: claim}, use_multipart=False
            )
        return str(done["e_tag"] or "")

    def _get(self, key: str, *, head: bool = False) -> Any:
        import obstore

        with obstore_errors(self.uri.join(key)):
            return obstore.get(self._bucket, self._path(key), options={"head": head})

    def _stream(self, key: str, on_progress: ProgressCallback, write: Callable[[bytes], object], *, check: bool) -> StoredFile:
        uri = self.uri.join(key)
        found = self._get(key)
        size, digest = 0, hashlib.sha256()
        chunks = iter(found.stream(min_chunk_size=CHUNK))
        while True:
            with obstore_errors(uri):
                chunk = next(chunks, None)
            if chunk is None:
                break
            size += len(chunk)
            digest.update(chunk)
            write(chunk)
            on_progress(len(chunk))
        if size != found.meta["size"]:
            raise StorageError(f"{uri}: received {size} of {found.meta['size']} bytes; try again")
        if check and (claim := _recorded_digest(found)) and claim != digest.hexdigest():
            raise ChecksumMismatch(f"{uri} is corrupt: its SHA-256 differs from the one recorded at upload")
        return StoredFile(size, digest.hexdigest())

    def _path(self, key: str) -> str:
        parts = key.split("/")
        if ".." in parts:
            raise StorageError(f"the key {key!r} is outside of {self.uri}")
        if any(part in ("", ".") for part in parts) or _CONTROL.search(key):
            raise StorageError(f"{key!r} is not a valid key in {self.uri}")
        return f"{self.uri.key}/{key}" if self.uri.key else key


@dataclass
class _LeaseObject:
    store: S3Store
    key: str

    def put_if(self, content: bytes, etag: str | None) -> str | None:
        return self.store._put_if(self.key, content, etag)

    def read(self) -> tuple[bytes, str] | None:
        try:
            return self.store._read_with_etag(self.key)
        except NotFound:
            return None

    def remove(self) -> None:
        self.store.delete(self.key)


class _VerifiedParts:
    """The parts of a file for an upload. Fails at the end, and so aborts the upload, if the digest is not `claim`."""

    def __init__(self, file: BinaryIO, part: int, on_progress: ProgressCallback, claim: str, source: Path):
        self.size = 0
        self._file, self._part, self._on_progress, self._claim, self._source = file, part, on_progress, claim, source

    def __iter__(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        with disk_errors(self._source):
            while chunk := self._file.read(self._part):
                self.size += len(chunk)
                digest.update(chunk)
                yield chunk
                self._on_progress(len(chunk))
        if digest.hexdigest() != self._claim:
            raise StorageError(f"{self._source} changed during the upload; try again")


def _recorded_digest(found: Any) -> str:
    text = str(found.attributes.get(_SHA256, ""))
    return text if re.fullmatch(r"[0-9a-f]{64}", text) else ""
