"""What head, workers and readers of a cache share: addresses, the message for workers, and clients. Imports pyarrow."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import flight

from trainwright.datacache.ranges import RowRange, Share

PORT = 50051
HEALTH_PORT = 8080
_ASSIGNMENT = pa.schema(
    [
        pa.field("worker_ids", pa.uint64(), nullable=False),
        pa.field("row_start_indexes", pa.uint64(), nullable=False),
        pa.field("row_end_indexes", pa.uint64(), nullable=False),
        pa.field("file_paths", pa.list_(pa.string_view()), nullable=False),
    ]
)
"""As Trainer's head sends it: one row for a worker."""
_NO_PROXY = [("grpc.enable_http_proxy", 0)]
"""A cache is in the cluster, and the pods' HTTPS_PROXY is not for it."""


def client(location: str) -> flight.FlightClient:
    """Return a client for `grpc://HOST:PORT`. It connects with the first call."""
    return flight.FlightClient(location, generic_options=_NO_PROXY)


def assignment(worker: int, share: Share) -> pa.RecordBatch:
    """Return the message that tells a worker its files; it must have rows."""
    assert share.rows is not None
    columns = [[worker], [share.rows.start], [share.rows.end], [[file.path for file in share.files]]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ASSIGNMENT, strict=True)]
    return pa.record_batch(arrays, schema=_ASSIGNMENT)


def parse_assignment(batch: pa.RecordBatch) -> tuple[list[str], RowRange]:
    """Return the files and the rows of a worker. Raises KeyError, IndexError for another message."""
    row = batch.to_pylist()[0]
    return row["file_paths"], RowRange(row["row_start_indexes"], row["row_end_indexes"])
