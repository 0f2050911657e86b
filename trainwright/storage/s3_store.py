"""A bucket of an S3 store, or what is below a prefix of it, as a store.

Data goes through obstore (bounded memory, retries). Every file carries its SHA-256 as metadata, so that an export that was cut
off knows what is there without reading it; whoever verifies reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainwright.storage.digests import CHUNK, Advance, file_digest, silent
from trainwright.storage.errors import AlreadyThere, Damaged, NotSupported, NotThere, StorageError
from trainwright.storage.s3_errors import s3_errors
from trainwright.storage.s3_lease import TERM, leased
from trainwright.storage.s3_leftovers import give_up_uploads
from trainwright.storage.s3_listing import ListedObject
from trainwright.storage.s3_settings import S3Settings
from trainwright.storage.store import StoredFile
from trainwright.storage.transfer import disk_errors
from trainwright.storage.uri import StorageUri
from trainwright.storage.whole_file import replacing

log = logging.getLogger(__name__)
PART = 8 * 1024 * 1024
"""Bytes of a part, and of the largest file that is sent as one; at least 5 MiB, by S3's rules."""
_AT_ONCE = 4
_MOST_PARTS = 9_000
_SHA256 = "sha256"
_NO_ETAG = '"00000000000000000000000000000000"'
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


class S3Store:
    """Implements `Store`. Keys never lead out of the prefix."""

    def __init__(self, uri: StorageUri, settings: S3Settings | None = None, *, lease_term: float = TERM):
        self.uri = uri
        self._settings = settings or S3Settings.from_environment()
        self._bucket: Any = self._settings.store(uri)
        self._lease_term = lease_term

    def put(self, source: Path, key: str, advance: Advance = silent) -> StoredFile:
        import obstore

        path, uri = self._path(key), self.uri.join(key)
        with disk_errors(source), open(source, "rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            # Metadata goes ahead of the contents, so their digest must be known first: a large file is read twice.
            claim = file_digest(source) if size > PART else ""
            if size <= PART:
                content = file.read(PART + 1)
                claim = hashlib.sha256(content).hexdigest()
                with s3_errors(uri):
                    obstore.put(self._bucket, path, content, attributes={_SHA256: claim}, use_multipart=False)
                advance(len(content))
                return StoredFile(len(content), claim)
            part = max(PART, -(-size // _MOST_PARTS))
            reading = _Reading(file, part, advance, claim, source)
            with s3_errors(uri):
                obstore.put(
                    self._bucket,
                    path,
                    iter(reading),
                    attributes={_SHA256: claim},
                    use_multipart=True,
                    chunk_size=part,
                    max_concurrency=_AT_ONCE,
                )
        return StoredFile(reading.size, claim)

    def get(self, key: str, target: Path, advance: Advance = silent) -> StoredFile:
        with disk_errors(target), replacing(target) as writing:
            return self._stream(key, advance, writing.write, check=True)

    def head(self, key: str) -> StoredFile | None:
        try:
            found = self._get(key, head=True)
        except NotThere:
            return None
        return StoredFile(found.meta["size"], _claim(found))

    def stat(self, key: str) -> ListedObject:
        """Size and ETag of a file. Raises NotThere."""
        found = self._get(key, head=True)
        return ListedObject(key, found.meta["size"], str(found.meta["e_tag"] or ""))

    def digest(self, key: str, advance: Advance = silent) -> str:
        return self._stream(key, advance, lambda _chunk: None, check=False).sha256

    def read(self, key: str) -> bytes:
        return self._look(key)[0]

    def create(self, key: str, content: bytes) -> None:
        uri = self.uri.join(key)
        if self.head(key) is not None:  # a store that ignores the condition would write over it
            raise AlreadyThere(f"{uri} exists")
        try:
            written = self._put_if(key, content, None)
        except NotSupported:
            return self.replace(key, content)
        if written is None:
            raise AlreadyThere(f"{uri} exists")

    def replace(self, key: str, content: bytes) -> None:
        self._write(key, content, "overwrite")

    def swap(self, key: str, old: bytes | None, new: bytes) -> bool:
        etag = None
        if old is not None:
            try:
                content, etag = self._look(key)
            except NotThere:
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
        """Remove a file; one that is not there is no error."""
        import obstore

        with contextlib.suppress(NotThere), s3_errors(self.uri.join(key)):
            obstore.delete(self._bucket, self._path(key))

    def honours_conditions(self, key: str) -> bool:
        try:
            self.replace(key, b"probe")
            return self._put_if(key, b"", None) is None and self._put_if(key, b"", _NO_ETAG) is None
        except NotSupported:
            return False
        finally:
            self.delete(key)

    @contextlib.contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """By a hidden object beside the files, only while it is held. Where the store cannot keep others out it says so.

        Uploads that a killed holder left unfinished are given up.
        """
        lock = f".{hashlib.sha256(key.encode()).hexdigest()[:16]}.lock"
        with contextlib.ExitStack() as stack:
            try:
                respected = stack.enter_context(leased(_LeaseObject(self, lock), str(self.uri.join(key)), term=self._lease_term))
            except NotSupported:
                respected = False
            if not respected:
                log.warning(
                    "this store ignores If-None-Match or If-Match, so it cannot keep two exporters apart; let only one export here "
                    "at a time uri=%s",
                    self.uri.join(key),
                )
            else:  # nobody else writes here now: what is unfinished is of somebody who was killed
                give_up_uploads(self._settings.control(), self.uri.join(key))
            yield

    def _look(self, key: str) -> tuple[bytes, str]:
        found = self._get(key)
        with s3_errors(self.uri.join(key)):
            return bytes(found.bytes()), str(found.meta["e_tag"] or "")

    def _put_if(self, key: str, content: bytes, etag: str | None) -> str | None:
        """Write if the object has this ETag (None: if there is none); returns the new ETag, or None. Raises NotSupported."""
        try:
            return self._write(key, content, "create" if etag is None else {"e_tag": etag})
        except (AlreadyThere, NotThere):  # some answer 404 to a condition on an object that is gone
            return None

    def _write(self, key: str, content: bytes, mode: Any) -> str:
        import obstore

        claim = hashlib.sha256(content).hexdigest()
        with s3_errors(self.uri.join(key)):
            done = obstore.put(
                self._bucket, self._path(key), content, mode=mode, attributes={_SHA256: claim}, use_multipart=False
            )
        return str(done["e_tag"] or "")

    def _get(self, key: str, *, head: bool = False) -> Any:
        import obstore

        with s3_errors(self.uri.join(key)):
            return obstore.get(self._bucket, self._path(key), options={"head": head})

    def _stream(self, key: str, advance: Advance, write: Callable[[bytes], object], *, check: bool) -> StoredFile:
        uri = self.uri.join(key)
        found = self._get(key)
        size, digest = 0, hashlib.sha256()
        chunks = iter(found.stream(min_chunk_size=CHUNK))
        while True:
            with s3_errors(uri):
                chunk = next(chunks, None)
            if chunk is None:
                break
            size += len(chunk)
            digest.update(chunk)
            write(chunk)
            advance(len(chunk))
        if size != found.meta["size"]:
            raise StorageError(f"{uri}: {size} bytes of {found.meta['size']} arrived; try again")
        if check and (claim := _claim(found)) and claim != digest.hexdigest():
            raise Damaged(f"{uri} is damaged: its SHA-256 is not the one that it was stored with")
        return StoredFile(size, digest.hexdigest())

    def _path(self, key: str) -> str:
        parts = key.split("/")
        if ".." in parts:
            raise StorageError(f"the key {key!r} leads out of {self.uri}")
        if any(part in ("", ".") for part in parts) or _CONTROL.search(key):
            raise StorageError(f"{key!r} is no key of a file in {self.uri}")
        return f"{self.uri.key}/{key}" if self.uri.key else key


@dataclass
class _LeaseObject:
    store: S3Store
    key: str

    def put_if(self, content: bytes, etag: str | None) -> str | None:
        return self.store._put_if(self.key, content, etag)

    def look(self) -> tuple[bytes, str] | None:
        try:
            return self.store._look(self.key)
        except NotThere:
            return None

    def remove(self) -> None:
        self.store.delete(self.key)


class _Reading:
    """A file in parts, digested on the way; the last part is given only when all are what was claimed."""

    def __init__(self, file: BinaryIO, part: int, advance: Advance, claim: str, source: Path):
        self.size = 0
        self._file, self._part, self._advance, self._claim, self._source = file, part, advance, claim, source

    def __iter__(self) -> Iterator[bytes]:
        digest = hashlib.sha256()
        with disk_errors(self._source):
            while chunk := self._file.read(self._part):
                self.size += len(chunk)
                digest.update(chunk)
                yield chunk
                self._advance(len(chunk))
        if digest.hexdigest() != self._claim:  # raised into the upload, which is then given up
            raise StorageError(f"{self._source} changed while it was being sent; try again")


def _claim(found: Any) -> str:
    text = str(found.attributes.get(_SHA256, ""))
    return text if re.fullmatch(r"[0-9a-f]{64}", text) else ""
