"""What the downloads of one call share: the client, the budget of retries, the progress, and the sizes of parts and buffers."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.storage.digests import ProgressCallback
from trainwright.storage.http.client import HttpClient
from trainwright.storage.http.retries import Retries


@dataclass(frozen=True)
class DownloadSizes:
    """In bytes."""

    part: int = 8 * 1024 * 1024
    """A smaller file is fetched by one request. A killed process loses at most a part of each file."""
    range_buffer: int = 1024 * 1024
    """Buffer of each thread that fetches ranges."""
    read_back: int = 512 * 1024
    """Buffer of the thread that verifies them."""
    whole_buffer: int = 512 * 1024
    """Buffer of a file that is fetched by one request."""
    journal_every: int = 4 * 1024 * 1024
    """Between two writes of the journal. A killed process loses at most these and what is in its buffers."""


SIZES = DownloadSizes()


@dataclass(frozen=True)
class DownloadSession:
    """`on_progress` gets a negative number when what has arrived is dropped. Downloads call it in several threads."""

    client: HttpClient
    retries: Retries
    on_progress: ProgressCallback
    sizes: DownloadSizes = SIZES
