"""The head of the cache: shares the files of the table out to the workers, and tells readers which worker has their rows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyarrow import flight

from trainwright.datacache.flight import assignment, client, location_of, server_options
from trainwright.datacache.ranges import Share, share_out, slice_of
from trainwright.datacache.settings import CacheError
from trainwright.datacache.table import Table

_PAUSE_SECONDS = 0.2
_CONNECT_SECONDS = 1
log = logging.getLogger(__name__)


class Head(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves at `location`, from its construction until `shutdown`, peers with `key`. `workers` are addresses, `HOST:PORT`."""

    def __init__(self, location: str, table: Table, workers: Sequence[str], *, key: str, assign_token: str):
        self._schema, self._workers = table.schema, [location_of(address, key) for address in workers]
        self._key, self._assign_token = key, assign_token
        self._shares = share_out(table.files, len(workers))
        self._total = sum(file.rows for file in table.files)
        self._is_loaded = threading.Event()
        super().__init__(location, **server_options(key))

    def load(self, seconds: float) -> None:
        """Send each worker its files, and wait until all have loaded them. `seconds` limits the wait for a worker to start.

        Raises CacheError with the first worker's reason.
        """
        deadline = time.monotonic() + seconds
        given = [(number, share) for number, share in enumerate(self._shares) if share.rows is not None]
        with ThreadPoolExecutor(max(len(given), 1)) as pool:
            for done in [pool.submit(self._send, number, share, deadline) for number, share in given]:
                done.result()
        self._is_loaded.set()
        log.info("event=loaded rows=%d workers=%d", self._total, len(given))

    def get_flight_info(self, _context: Any, descriptor: Any) -> Any:
        """Return where the rows of a reader are: `[rank, total]` is the path. A reader for which none are left gets no endpoints."""
        if not self._is_loaded.is_set():
            raise flight.FlightUnavailableError("the cache is still loading")
        try:
            rank, readers = (int(part) for part in descriptor.path)
            rows = slice_of(self._total, readers, rank)
        except ValueError as error:
            raise pa.ArrowInvalid(f"the path of a descriptor is [rank, number of readers]: {error}") from error
        endpoints = []
        for location, share in zip(self._workers, self._shares, strict=True):
            if rows is not None and share.rows is not None and (part := rows.overlap(share.rows)) is not None:
                endpoints.append(flight.FlightEndpoint(part.ticket(), [location], app_metadata=part.ticket()))
        return flight.FlightInfo(self._schema, descriptor, endpoints, len(rows) if rows else 0, -1)

    def _send(self, number: int, share: Share, deadline: float) -> None:
        message, location = assignment(number, share), self._workers[number]
        _wait_for(location, self._key, deadline)
        try:
            with client(location, self._key) as connection:
                writer, _ = connection.do_put(flight.FlightDescriptor.for_command(self._assign_token), message.schema)
                with writer:
                    writer.write_batch(message)
        except (flight.FlightError, pa.ArrowException) as error:
            raise CacheError(f"worker {number} of the cache failed: {_reason(error)}") from error


def _wait_for(location: str, key: str, deadline: float) -> None:
    while True:
        try:
            with client(location, key) as connection:
                connection.wait_for_available(timeout=_CONNECT_SECONDS)
            return
        except (flight.FlightError, pa.ArrowException) as error:  # its pod may start later than this one
            if time.monotonic() > deadline:
                raise CacheError(f"the worker at {location} cannot be reached: {_reason(error)}") from error
        time.sleep(_PAUSE_SECONDS)


def _reason(error: Exception) -> str:
    """Return what a worker said, without what Flight adds to it."""
    return str(error).split(". Detail: ")[0].split(". gRPC client debug context")[0].strip()
