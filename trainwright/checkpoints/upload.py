"""Sends the files of a checkpoint under keys of one attempt, and confirms every stored byte before anything is published.

An attempt never writes to a key that another one writes to. So a process that was frozen, and wakes up after another one has
published the checkpoint, cannot damage it. Files that the run's exports, or attempts that were cut off, have stored already are
referenced instead of sent.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.exported import Export
from trainwright.checkpoints.manifest import ManifestFile
from trainwright.storage.checksums import Checksums
from trainwright.storage.errors import NotFound
from trainwright.storage.parallel import Stop, for_each
from trainwright.storage.plain_files import CHUNK, ProgressCallback, no_progress, open_plain
from trainwright.storage.store import Capabilities, Lock, Store, StoredFile
from trainwright.storage.transfer import chunks_of

log = logging.getLogger(__name__)
_SENT_AGAIN = 64 * 1024
"""Bytes up to which a file of an attempt that was cut off is sent again rather than looked for: the question costs as much."""
_LARGE = 8 * 1024 * 1024
SMALL_AT_ONCE, _LARGE_AT_ONCE = 8, 2
"""Several at once, since each waits for the network. Every large one holds a few parts in memory. Small files on a disk are written
one after another, which is faster than by threads.
"""
_SAMPLE = 64 * 1024
_TRIES = 3
_NAME = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[0-9a-f]{8}")
_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class LocalFile:
    """A file to export: its `folder`, the `path` in it, as a key, and its size in bytes."""

    folder: Path
    path: str
    size: int

    @property
    def location(self) -> Path:
        return self.folder / self.path


@dataclass(frozen=True)
class StoredCopy:
    """A file in the store that may have the same contents. `key` is relative to the run's exports; empty checksums are unknown."""

    key: str
    sha256: str = ""
    crc64nvme: str = ""


def new_attempt() -> str:
    """Return the name of the folder of an attempt, such as `20261123T051502Z-9f3a12cd`. No two share one, on any machine."""
    return f"{datetime.now(UTC):{_TIME}}-{secrets.token_hex(4)}"


@dataclass
class Upload:
    """One attempt to store files below `store`, the run's exports, as the export `name`."""

    store: Store
    name: str
    lock: Lock
    copies: dict[tuple[str, int], list[StoredCopy]] = field(default_factory=lambda: defaultdict(list))
    attempt: str = field(default_factory=new_attempt)
    small_at_once: int = SMALL_AT_ONCE
    """Small files that are sent at the same time, to a store that is not on a disk."""

    def offer_export(self, export: Export) -> None:
        """Offer the files of an export of the run for reference."""
        for file in export.manifest.files:
            self.copies[file.path, file.size].append(StoredCopy(export.key_in_run(file), file.sha256, file.crc64nvme))

    def offer_attempts(self) -> None:
        """Offer the files that attempts at this export have stored before they were cut off."""
        for key, size in self.store.list_files(self.name):
            _, _, path = key.removeprefix(f"{self.name}/").partition("/")
            if path and size > _SENT_AGAIN:
                self.copies[path, size].append(StoredCopy(key))

    def send(self, files: Iterable[LocalFile], on_progress: ProgressCallback) -> tuple[ManifestFile, ...]:
        """Store and confirm all files. Raises CheckpointError, LockLost, StorageError."""
        listed = sorted(files, key=lambda file: -file.size)
        large = [file for file in listed if file.size > _LARGE]
        stop = Stop()
        report = stop.watch(on_progress)

        def store_one(file: LocalFile) -> ManifestFile:
            self.lock.require()
            copies = self.copies.get((file.path, file.size), ())
            found = self._find_copy(file, copies, report) if copies and file.size else None
            return found or self._put(file, report)

        sent = for_each(large, store_one, at_once=_LARGE_AT_ONCE, stop=stop)
        sent += for_each(listed[len(large) :], store_one, at_once=self._small_at_once, stop=stop)
        self._confirm(sent, {file.path: file for file in listed})
        return tuple(sorted(sent, key=lambda file: file.path))

    @property
    def capabilities(self) -> Capabilities:
        return self.store.capabilities()

    @property
    def _small_at_once(self) -> int:
        return 1 if self.store.uri.scheme == "file" else self.small_at_once

    def _put(self, file: LocalFile, on_progress: ProgressCallback) -> ManifestFile:
        stored = self.store.put(file.location, f"{self.name}/{self.attempt}/{file.path}", on_progress, within=file.folder)
        return ManifestFile(
            path=file.path,
            size=stored.size,
            sha256=stored.sha256,
            crc64nvme=stored.crc64nvme,
            key=f"{self.attempt}/{file.path}",
        )

    def _find_copy(self, file: LocalFile, copies: Iterable[StoredCopy], on_progress: ProgressCallback) -> ManifestFile | None:
        """Return a confirmed copy with the same contents. Reads the local file only if a sample of a copy is equal to it."""
        likely = [copy for copy in copies if file.size <= 16 * _SAMPLE or self._has_same_sample(file, copy)]
        if not likely:  # the whole file need not be read
            return None
        seen = Checksums()
        with open_plain(file.location, file.folder) as content:
            for chunk in chunks_of(content, CHUNK):
                seen.update(chunk)
        local = StoredFile(seen.size, seen.sha256, seen.crc64nvme)
        for copy in likely:
            if copy.sha256 in ("", local.sha256) and self._is_confirmed(copy, local):
                on_progress(file.size)
                own = f"{self.name}/"
                key = copy.key.removeprefix(own) if copy.key.startswith(own) else f"../{copy.key}"
                log.info("event=file_referenced path=%s key=%s size=%d", file.path, copy.key, file.size)
                return ManifestFile(path=file.path, size=file.size, sha256=local.sha256, crc64nvme=local.crc64nvme, key=key)
        return None

    def _has_same_sample(self, file: LocalFile, copy: StoredCopy) -> bool:
        """Compare a piece from the middle: files of another step mostly have the same size but other contents."""
        start = max(0, file.size // 2 - _SAMPLE // 2)
        with open_plain(file.location, file.folder) as local:
            local.seek(start)
            expected = local.read(_SAMPLE)
        try:
            return self.store.read_range(copy.key, start, _SAMPLE) == expected
        except NotFound:  # deleted meanwhile, as by retention
            return False

    def _is_confirmed(self, copy: StoredCopy, local: StoredFile) -> bool:
        stored = self.store.inspect(copy.key)
        if stored is None or stored.size != local.size:
            return False
        if self.capabilities.checks_uploads and stored.crc64nvme:  # others only repeat what was sent with the upload
            return stored.crc64nvme == local.crc64nvme
        return self.store.checksums(copy.key) == local

    def _confirm(self, sent: list[ManifestFile], files: Mapping[str, LocalFile]) -> None:
        """Check what has arrived under the keys of this attempt: by its size if the store has checked the contents, else by reading.

        A file that is damaged is sent again. Raises CheckpointError if it stays damaged.
        """
        own = [file for file in sent if file.key.startswith(f"{self.attempt}/")]
        self.store.sync([self._key(file) for file in own])
        for _ in range(_TRIES):
            damaged = self._damaged(own)
            if not damaged:
                return
            for file in damaged:
                self.lock.require()
                log.warning("event=upload_damaged uri=%s action=send_again", self.store.uri.join(self._key(file)))
                again = self._put(files[file.path], no_progress)
                if again != file:
                    raise CheckpointError(f"{files[file.path].location} changed during the export; try again")
            self.store.sync([self._key(file) for file in damaged])
            own = damaged
        names = ", ".join(file.path for file in own[:5])
        raise CheckpointError(
            f"{self.store.uri.join(self.name)}: the store returns other data than was sent for {names}; not published"
        )

    def _damaged(self, files: list[ManifestFile]) -> list[ManifestFile]:
        if self.capabilities.checks_uploads:  # the store has checked the contents of each upload
            arrived = dict(self.store.list_files(f"{self.name}/{self.attempt}"))
            return [file for file in files if arrived.get(self._key(file)) != file.size]
        found = for_each(files, lambda file: self.store.checksums(self._key(file)), at_once=self._small_at_once)
        return [
            file for file, stored in zip(files, found, strict=True) if (stored.size, stored.sha256) != (file.size, file.sha256)
        ]

    def _key(self, file: ManifestFile) -> str:
        return f"{self.name}/{file.key}"


def attempt_time(key: str) -> datetime | None:
    """Return when the attempt began that stored a file, by its key `EXPORT/ATTEMPT/PATH`; None for other keys."""
    _, _, rest = key.partition("/")
    attempt, slash, _ = rest.partition("/")
    match = _NAME.fullmatch(attempt) if slash else None
    try:
        return datetime.strptime(match[1], _TIME).replace(tzinfo=UTC) if match else None
    except ValueError:  # no such day
        return None
