"""What head, workers and readers of a cache share: addresses, the message for workers, clients and servers. Imports pyarrow.

The pods of a cache and its readers have one key with a self-signed certificate: both sides of a connection ask for it, in TLS, before
they read a call. gRPC takes messages of any size, so that whoever may send one may use up the memory of a worker.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import flight

from trainwright.api import names
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


_TLS = "grpc+tls://"
_MOST_ROWS = 2**63 - 1


def location_of(address: str, key: str) -> str:
    """Return the Flight location of `HOST:PORT`, of a cache with this key; without one it is open, as Trainer's."""
    return f"{_TLS if key else 'grpc://'}{address}"


def client(location: str, key: str) -> flight.FlightClient:
    """Return a client for a location. It connects with the first call, and uses the key only where the location says TLS."""
    if not location.startswith(_TLS):
        return flight.FlightClient(location, generic_options=_NO_PROXY)
    pem = {"tls_root_certs": key, "cert_chain": key, "private_key": key}
    return flight.FlightClient(location, generic_options=_NO_PROXY, override_hostname=names.CACHE_HOST, **pem)


def server_options(key: str) -> dict[str, Any]:
    """Return the arguments of a Flight server that admits only peers with its own key; without one, all."""
    return {"tls_certificates": [(key, key)], "verify_client": True, "root_certificates": key} if key else {}


def assignment(worker: int, share: Share) -> pa.RecordBatch:
    """Return the message that tells a worker its files; it must have rows."""
    assert share.rows is not None
    columns = [[worker], [share.rows.start], [share.rows.end], [[file.path for file in share.files]]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ASSIGNMENT, strict=True)]
    return pa.record_batch(arrays, schema=_ASSIGNMENT)


def parse_assignment(batch: pa.RecordBatch | None) -> tuple[list[str], RowRange]:
    """Return the files and the rows of a worker. Raises ValueError for another message."""
    if batch is None or not batch.schema.equals(_ASSIGNMENT) or batch.num_rows != 1:
        raise ValueError("an assignment is one row of worker_ids, row_start_indexes, row_end_indexes and file_paths")
    batch.validate(full=True)
    row = batch.to_pylist()[0]
    paths, start, end = row["file_paths"], row["row_start_indexes"], row["row_end_indexes"]
    if not paths or None in (*paths, start, end) or not start <= end <= _MOST_ROWS:
        raise ValueError(f"an assignment has files, and rows up to {_MOST_ROWS}")
    return paths, RowRange(start, end)
