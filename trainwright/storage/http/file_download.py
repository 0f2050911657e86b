"""Downloads one file: a large one by ranges, a small one, or one of a server without ranges, with one request.

The digest is computed while the file is written. The target's name appears only when the contents are verified.
"""

from __future__ import annotations

import logging
from pathlib import Path

from trainwright.storage.errors import ChecksumMismatch
from trainwright.storage.http.download_session import DownloadSession
from trainwright.storage.http.errors import RangesIgnored, WrongDigest
from trainwright.storage.http.ranged_download import download_ranges
from trainwright.storage.http.remote_file import RemoteFile
from trainwright.storage.http.whole_download import download_whole
from trainwright.storage.transfer import disk_errors

log = logging.getLogger(__name__)
_FETCHES = 2
"""Downloads of a file with a wrong digest, in all."""


def download(session: DownloadSession, remote: RemoteFile, target: Path) -> None:
    """Download a file to `target`, verified but not synced to disk. Resumes what an earlier process has left.

    Only one process may use the folder. Raises ChecksumMismatch after two downloads with a wrong digest, RemoteChanged,
    HttpError, Unreachable, NoSpace, StorageError, Cancelled.
    """
    for fetch in range(1, _FETCHES + 1):
        try:
            with disk_errors(target):
                _download_once(session, remote, target)
                return
        except WrongDigest as wrong:
            session.on_progress(-wrong.size)
            if fetch == _FETCHES:
                raise ChecksumMismatch(
                    f"{remote.name} is corrupt (its digest differs from the expected one) and was removed; try again"
                ) from None
            log.warning("event=download_corrupt file=%r", remote.name)


def _download_once(session: DownloadSession, remote: RemoteFile, target: Path) -> None:
    if remote.size is not None and remote.size > session.sizes.part and remote.supports_ranges and remote.identity:
        try:
            download_ranges(session, remote, remote.size, target)
            return
        except RangesIgnored:
            log.info("event=download_without_ranges file=%r", remote.name)
    download_whole(session, remote, target)
