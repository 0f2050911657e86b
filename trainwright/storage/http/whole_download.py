"""Downloads one file with one request, verified while it is written. After an error it starts over."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

from trainwright.storage.digests import ProgressCallback
from trainwright.storage.errors import StorageError
from trainwright.storage.http.client import HttpResponse
from trainwright.storage.http.download_session import DownloadSession
from trainwright.storage.http.errors import MAX_EXPIRED, ConnectionCut, RemoteChanged, WrongDigest, has_expired
from trainwright.storage.http.partial_file import partial_paths
from trainwright.storage.http.remote_file import RemoteFile
from trainwright.storage.http.retries import Retries


def download_whole(session: DownloadSession, remote: RemoteFile, target: Path) -> None:
    """Download a file to `target`, not synced to disk.

    Raises WrongDigest, RemoteChanged, HttpError, Unreachable, StorageError, Cancelled, OSError.
    """
    temporary, _ = partial_paths(target)
    retries = session.retries
    arrived = _Arrived(retries, session.on_progress)
    attempt = refused = 0
    while True:
        try:
            is_right = _fetch_whole(session, remote, temporary, arrived)
            break
        except StorageError as error:
            temporary.unlink(missing_ok=True)
            attempt = 0 if arrived.start_over() else attempt + 1
            is_announced_wrongly = isinstance(error, RemoteChanged) and remote.digest is not None
            if (is_announced_wrongly or has_expired(error, was_redirected=False)) and refused < MAX_EXPIRED:
                refused += 1
                error = ConnectionCut(str(error))
            retries.pause(error, attempt)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    if not is_right:
        temporary.unlink()
        raise WrongDigest(arrived.count)
    os.replace(temporary, target)


class _Arrived:
    """Counts what has arrived of a file that starts over after an error: only more than ever before is progress."""

    def __init__(self, retries: Retries, on_progress: ProgressCallback):
        self.count, self._most, self._is_more = 0, 0, False
        self._retries, self._on_progress = retries, on_progress

    def __call__(self, count: int) -> None:
        self.count += count
        if self.count > self._most:
            self._most, self._is_more = self.count, True
            self._retries.progress()
        self._on_progress(count)

    def start_over(self) -> bool:
        """Take back what was counted. Returns whether the attempt came further than all before."""
        was_more, self._is_more = self._is_more, False
        self._on_progress(-self.count)
        self.count = 0
        return was_more


def _fetch_whole(session: DownloadSession, remote: RemoteFile, temporary: Path, on_progress: ProgressCallback) -> bool:
    """Fetch the whole file with one request into a new file. Returns whether its digest is the expected one."""
    descriptor = _create_file(temporary)
    hasher = remote.digest.hasher(remote.size or 0) if remote.digest is not None else None
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        if remote.size != 0:
            with session.client.open(remote.url) as response:
                for data in _body(remote, response, session.sizes.whole_buffer):
                    if hasher is not None:
                        hasher.update(data)
                    _write_all(file, data)
                    on_progress(len(data))
    return remote.digest is None or hasher is None or hasher.hexdigest() == remote.digest.value


def _create_file(path: Path) -> int:
    """Return the descriptor of a new file: never through a link, and never with the tail of an earlier attempt."""
    for _ in range(3):
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            for left in (path, path.with_suffix(".journal")):
                left.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


def _write_all(file: io.FileIO | io.RawIOBase, data: memoryview) -> None:
    while data:
        data = data[file.write(data) or 0 :]


def _body(remote: RemoteFile, response: HttpResponse, buffer_size: int) -> Iterator[memoryview]:
    """Yield the contents. Raises ConnectionCut if they are not whole."""
    remote.check_whole(response)
    if response.length is None and not response.is_chunked and remote.digest is None and remote.size is None:
        raise StorageError(f"{remote.name}: the server does not say where the file ends; add #sha256=DIGEST to the address")
    buffer = memoryview(bytearray(buffer_size if remote.size is None else min(buffer_size, remote.size + 1)))
    received = 0
    while count := response.readinto(buffer):
        received += count
        if remote.size is not None and received > remote.size:
            raise RemoteChanged(f"{remote.name} has more than {remote.size} bytes: it was replaced; try again")
        yield buffer[:count]
    if remote.size is not None and received < remote.size:
        raise ConnectionCut(f"{remote.name}: the server sent {received} of {remote.size} bytes")
