"""Caches of small tables in this process: head, workers and readers with one key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from trainwright.datacache.head import Head
from trainwright.datacache.health import MemoryGuard
from trainwright.datacache.reader import CacheReader
from trainwright.datacache.table import open_table
from trainwright.datacache.worker import Worker
from trainwright.materialize import RandomKeys

KEY, TOKEN = RandomKeys().tls("data-cache.trainwright.dev"), "t" * 64
TLS, PLAIN = "grpc+tls://127.0.0.1", "grpc://127.0.0.1"
SECURED: dict[str, Any] = {"key": KEY, "assign_token": TOKEN}
READ = {"TRAINWRIGHT_CACHE_KEY": KEY}


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + count), pa.int64()), "text": [f"row {start + n}" for n in range(count)]})


def parquet_folder(folder: Path, *counts: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for number, count in enumerate(counts):
        pa.parquet.write_table(rows(start, count), folder / f"part-{number}.parquet", row_group_size=7)
        start += count
    return folder


def worker_of(location: str, failures: list[str], workers: int = 1, memory: int = 0, **access: str) -> Any:
    guard = MemoryGuard(memory, workers, failures.append)
    host = TLS if (access or SECURED)["key"] else PLAIN
    return Worker(f"{host}:0", location, guard, failures.append, **(access or SECURED))


@contextmanager
def cache(location: str, workers: int = 2, memory: int = 0, **access: str) -> Iterator[tuple[str, list[Any], list[str]]]:
    """Start a cache; yields the head's address, the workers, and the reasons with which they have failed."""
    failures: list[str] = []
    servers = [worker_of(location, failures, workers, memory, **access) for _ in range(workers)]
    host = TLS if (access or SECURED)["key"] else PLAIN
    addresses = [f"127.0.0.1:{worker.port}" for worker in servers]
    head = Head(f"{host}:0", open_table(location), addresses, **(access or SECURED))
    try:
        head.load(10)
        yield f"{host}:{head.port}", servers, failures
    finally:
        for server in (head, *servers):
            server.shutdown()


def reader(address: str, rank: int = 0, readers: int = 1, **settings: Any) -> CacheReader:
    return CacheReader(address, rank=rank, readers=readers, environ=READ, **settings)


def ids(reading: CacheReader) -> list[int]:
    return [number for batch in reading.batches() for number in batch["id"].to_pylist()]
