"""What a training uses to read its part of a data cache: the same rows in each epoch, none twice and none left out.

Requires pyarrow, which comes with `datasets`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyarrow import flight

from trainwright.api import names
from trainwright.datacache.flight import PORT, client, location_of
from trainwright.datacache.ranges import RowRange
from trainwright.datacache.settings import CacheError, CacheLost

WAIT_SECONDS = 120.0
"""For a cache that does not answer; one that is started again, after a job was suspended, must load its table."""
_PAUSE_SECONDS = 0.5
_CALL_SECONDS = 30.0
log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_Lost = (flight.FlightError, pa.ArrowException, OSError)
"""What a lost connection raises, besides others that a retry cannot help."""


@dataclass(frozen=True)
class _Part:
    location: str
    rows: RowRange


class CacheReader:
    """The rows of one reader of a cache, from the environment of a training's process: TRAIN_JOB_NAME, RANK, WORLD_SIZE and
    TRAINWRIGHT_CACHE_KEY.

    Args:
        address: location of the cache's head, `grpc+tls://HOST:PORT` if it asks for a key, as it does if there is one, else
            `grpc://HOST:PORT`; default: the Service of the job's cache.
        rank: number of this reader; default RANK, else 0.
        readers: number of readers; default WORLD_SIZE, else 1.
        wait_seconds: for how long a cache that does not answer is tried again, each time.

    Raises CacheError if the environment or the arguments name no cache or no such reader, CacheLost if the cache does not answer.
    """

    def __init__(
        self,
        address: str = "",
        *,
        rank: int | None = None,
        readers: int | None = None,
        wait_seconds: float = WAIT_SECONDS,
        environ: Mapping[str, str] = os.environ,
    ):
        self._key = environ.get(names.CACHE_KEY_VARIABLE, "")
        self._address = address or _address_of(environ, self._key)
        self._wait_seconds = wait_seconds
        rank = int(environ.get("RANK") or 0) if rank is None else rank
        readers = int(environ.get("WORLD_SIZE") or 1) if readers is None else readers
        if not 0 <= rank < readers:
            raise CacheError(f"there is no reader {rank} of {readers}; RANK and WORLD_SIZE come from the training's launcher")
        info = self._patiently(self._address, lambda: self._find(rank, readers))
        self.schema: pa.Schema = info.schema
        self._parts = sorted(map(_part, info.endpoints), key=lambda part: part.rows.start)
        self.rows = sum(len(part.rows) for part in self._parts)
        """Number of rows of this reader. Those with the highest ranks may have fewer, or none."""
        if info.total_records not in (-1, self.rows):
            raise CacheLost(f"the cache at {self._address} has {self.rows} of the {info.total_records} rows of reader {rank}")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of this reader, in the same order each time: one call is an epoch.

        After a lost connection, continues with the next row. Raises CacheLost if that does not succeed, or rows are missing.
        """
        for part in self._parts:
            yield from self._read(part)

    def _find(self, rank: int, readers: int) -> flight.FlightInfo:
        descriptor = flight.FlightDescriptor.for_path(str(rank), str(readers))
        with client(self._address, self._key) as connection:
            return connection.get_flight_info(descriptor, flight.FlightCallOptions(timeout=_CALL_SECONDS))

    def _read(self, part: _Part) -> Iterator[pa.RecordBatch]:
        next_row, deadline = part.rows.start, time.monotonic() + self._wait_seconds
        while next_row <= part.rows.end:
            missing = RowRange(next_row, part.rows.end)
            try:
                with client(part.location, self._key) as connection:
                    for chunk in connection.do_get(flight.Ticket(missing.ticket())):
                        next_row += chunk.data.num_rows
                        if next_row > part.rows.end + 1:
                            raise CacheLost(
                                f"the cache at {part.location} has sent more rows than {missing.start} to {missing.end}"
                            )
                        yield chunk.data
                        deadline = time.monotonic() + self._wait_seconds
                if next_row <= part.rows.end:
                    raise CacheLost(
                        f"the cache at {part.location} has no rows {next_row} to {part.rows.end} any more; was it started again?"
                    )
            except _Lost as error:
                self._pause(part.location, error, deadline)

    def _patiently(self, location: str, call: Callable[[], _Result]) -> _Result:
        deadline = time.monotonic() + self._wait_seconds
        while True:
            try:
                return call()
            except pa.ArrowInvalid as error:
                raise CacheError(f"the cache at {location} refuses: {_line(error)}") from error
            except _Lost as error:
                self._pause(location, error, deadline)

    def _pause(self, location: str, error: Exception, deadline: float) -> None:
        """Wait a moment before another try. Raises CacheLost after the deadline."""
        if time.monotonic() > deadline:
            raise CacheLost(
                f"the data cache at {location} has not answered for {self._wait_seconds:g} s: {_line(error)}. Its pods may have "
                "failed; see `kubectl get pods` and their logs"
            ) from error
        log.warning("event=cache_unavailable location=%s error=%s", location, _line(error))
        time.sleep(_PAUSE_SECONDS)


def _address_of(environ: Mapping[str, str], key: str) -> str:
    if not (job := environ.get("TRAIN_JOB_NAME")):
        raise CacheError(
            "TRAIN_JOB_NAME is not set: this training has no data cache; use the runtime torch-distributed-with-cache"
        )
    return location_of(f"{job}-cache-service:{PORT}", key)


def _part(endpoint: flight.FlightEndpoint) -> _Part:
    try:
        return _Part(endpoint.locations[0].uri.decode(), RowRange.from_ticket(endpoint.app_metadata or endpoint.ticket.ticket))
    except (IndexError, ValueError) as error:
        raise CacheError(f"the cache has sent an unknown kind of endpoint: {error}") from error


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]
