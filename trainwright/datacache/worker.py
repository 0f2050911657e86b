"""A worker of the cache: loads the files that the head names into memory, and sends rows of them to readers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import flight

from trainwright.datacache.errors import CacheError
from trainwright.datacache.flight import parse_assignment
from trainwright.datacache.memory import MemoryGuard
from trainwright.datacache.ranges import RowRange
from trainwright.datacache.table import Table, open_table

log = logging.getLogger(__name__)


class Worker(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Serves at `location`, from its construction until `shutdown`. `fail` is called with the reason if it cannot load its rows."""

    def __init__(self, location: str, metadata_loc: str, guard: MemoryGuard, fail: Callable[[str], None]):
        self._metadata_loc, self._guard, self._fail = metadata_loc, guard, fail
        self._lock = threading.Lock()
        self._rows: RowRange | None = None
        self._table: pa.Table | None = None
        super().__init__(location)

    def do_put(self, _context: Any, _descriptor: Any, reader: Any, _writer: Any) -> None:
        """Load the files of the head's message; ends when they are in memory."""
        with self._lock:
            try:
                paths, rows = parse_assignment(reader.read_chunk().data)
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
