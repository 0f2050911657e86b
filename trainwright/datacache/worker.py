"""A worker of the cache: loads the files that the head names into memory, and sends rows of them to readers."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import flight

from trainwright.datacache.flight import parse_assignment, server_options
from trainwright.datacache.health import MemoryGuard
from trainwright.datacache.ranges import RowRange
from trainwright.datacache.settings import CacheError
from trainwright.datacache.table import Table, open_table

log = logging.getLogger(__name__)


class Worker(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves at `location`, from its construction until `shutdown`, peers with `key`, and takes files from whom has `assign_token`.

    `fail` is called with the reason if it cannot load its rows. Nothing else that is sent ends it.
    """

    def __init__(
        self, location: str, metadata_loc: str, guard: MemoryGuard, fail: Callable[[str], None], *, key: str, assign_token: str
    ):
        self._metadata_loc, self._guard, self._fail, self._assign_token = metadata_loc, guard, fail, assign_token
        self._lock = threading.Lock()
        self._assigned: tuple[list[str], RowRange] | None = None
        self._rows: RowRange | None = None
        self._table: pa.Table | None = None
        super().__init__(location, **server_options(key))

    def do_put(self, _context: Any, descriptor: Any, reader: Any, _writer: Any) -> None:
        """Load the files of the head's message; ends when they are in memory. The same message again changes nothing."""
        if not hmac.compare_digest(descriptor.command or b"", self._assign_token.encode()):  # before anything is read
            raise flight.FlightUnauthorizedError("only the head of the cache gives a worker its files")
        try:
            given = parse_assignment(reader.read_chunk().data)
        except (StopIteration, ValueError, pa.ArrowException) as error:
            raise pa.ArrowInvalid(f"no assignment: {error}") from None
        with self._lock:
            if self._assigned is None:
                self._assigned = given
                self._take(*given)
            elif self._assigned != given or self._table is None:  # other rows would be lost to the readers of these
                raise flight.FlightServerError("the worker has other rows, or could not load these")

    def _take(self, paths: list[str], rows: RowRange) -> None:
        try:
            self._table, self._rows = self._load(open_table(self._metadata_loc), paths, rows), rows
        except Exception as error:  # whatever it is, the head and the pod's status must have it
            reason = str(error) if isinstance(error, CacheError) else f"{type(error).__name__}: {error}"
            self._fail(reason)
            raise flight.FlightServerError(reason) from error
        log.info("event=loaded rows=%d first=%d bytes=%d", len(rows), rows.start, self._table.nbytes)

    def do_get(self, _context: Any, ticket: Any) -> Any:
        """Send those rows of the ticket that this worker has."""
        if self._table is None or self._rows is None:
            raise flight.FlightUnavailableError("the worker has not loaded its rows")
        wanted = RowRange.from_ticket(ticket.ticket)
        found = wanted.overlap(self._rows)
        chosen = self._table.slice(found.start - self._rows.start, len(found)) if found else self._table.slice(0, 0)
        return flight.RecordBatchStream(chosen)

    def _load(self, table: Table, paths: list[str], rows: RowRange) -> pa.Table:
        files = {file.path: file for file in table.files}
        if unknown := [path for path in paths if path not in files]:
            raise CacheError(f"{unknown[0]} is not a file of the table any more; it has changed since the cache was started")
        self._guard.expect(len(rows), sum(files[path].least_bytes for path in paths))
        batches: list[pa.RecordBatch] = []
        for path in paths:
            before = self._guard.loaded
            for batch in table.read(path):
                batches.append(batch)
                self._guard.loaded += batch.num_rows
            if (count := self._guard.loaded - before) != files[path].rows:
                raise CacheError(f"{path} has {count} rows, and {files[path].rows} were planned; it has changed")
        if self._guard.loaded != len(rows):
            raise CacheError(f"the files have {self._guard.loaded} rows, and {len(rows)} were planned")
        return pa.Table.from_batches(batches, table.schema)
