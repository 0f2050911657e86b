"""Head, workers and readers, in one process: rows of Parquet and CSV, lost connections, and tables that change or do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from pyarrow import flight
from running_cache import KEY, READ, SECURED, TLS, cache, ids, parquet_folder, reader, rows, worker_of

from trainwright.datacache import head as head_module
from trainwright.datacache import reader as reader_module
from trainwright.datacache.flight import client as client_of
from trainwright.datacache.head import Head
from trainwright.datacache.reader import CacheReader
from trainwright.datacache.settings import CacheError, CacheLost
from trainwright.datacache.table import open_table
from trainwright.datacache.worker import Worker


@pytest.mark.medium
def test_readers_get_each_row_once_and_the_same_rows_in_each_epoch(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "table", 10, 31, 0, 16)
    with cache(str(folder)) as (address, _, _):
        readers = [reader(address, rank, 3) for rank in range(3)]
        epochs = [[ids(each) for each in readers] for _ in range(2)]
    assert epochs[0] == epochs[1]
    assert [len(part) for part in epochs[0]] == [each.rows for each in readers] == [19, 19, 19]
    assert sorted(number for part in epochs[0] for number in part) == list(range(57))
    assert readers[0].schema.names == ["id", "text"]


def test_readers_beyond_the_last_row_get_none(tmp_path: Path) -> None:
    with cache(str(parquet_folder(tmp_path / "table", 3))) as (address, _, _):
        readers = [reader(address, rank, 5) for rank in range(5)]
        assert [ids(each) for each in readers] == [[0], [1], [2], [], []]
        assert [each.rows for each in readers] == [1, 1, 1, 0, 0]


def test_csv_files_have_the_types_of_the_first_one(tmp_path: Path) -> None:
    for number, start in enumerate((0, 4)):
        pa.csv.write_csv(rows(start, 4), tmp_path / f"{number}.csv")
    with cache(tmp_path.as_uri()) as (address, _, _):
        assert sorted(ids(reader(address))) == list(range(8))


def test_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "table", 4)
    pa.parquet.write_table(pa.table({"other": [1]}), folder / "z.parquet")
    with pytest.raises(CacheError, match=r"z.parquet: its rows do not have the columns .*'other'"), cache(str(folder), 1):
        pass


def test_table_that_changed_after_planning_is_refused(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "table", 4)
    location: str = str(folder)
    failures: list[str] = []
    worker = worker_of(location, failures)
    head = Head(f"{TLS}:0", open_table(location), [f"127.0.0.1:{worker.port}"], **SECURED)
    parquet_folder(folder, 3)
    with pytest.raises(CacheError, match="3 rows, and 4 were planned"):
        head.load(10)
    assert failures == ["the files have 3 rows, and 4 were planned"]
    head.shutdown()
    worker.shutdown()


@pytest.mark.parametrize("content", [None, {}, {"a.parquet": b"", "b.csv": b"id\n1\n"}, {"a.parquet": b"no parquet"}])
def test_unreadable_table_is_named(content: dict[str, bytes] | None, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    if content is not None:
        folder.mkdir()
        for name, text in content.items():
            (folder / name).write_bytes(text)
    with pytest.raises(CacheError, match=f"METADATA_LOC={folder}"):
        open_table(str(folder))


def test_head_names_a_worker_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "_CONNECT_SECONDS", 0.05)
    head = Head(f"{TLS}:0", open_table(str(parquet_folder(tmp_path / "t", 2))), ["127.0.0.1:9"], **SECURED)
    with pytest.raises(CacheError, match=r"the worker at grpc\+tls://127.0.0.1:9 cannot be reached"):
        head.load(0)
    with pytest.raises(flight.FlightUnavailableError):
        find(f"{TLS}:{head.port}")
    head.shutdown()


def find(address: str) -> flight.FlightInfo:
    with client_of(address, KEY) as client:
        return client.get_flight_info(flight.FlightDescriptor.for_path("0", "1"))


def test_reader_continues_after_a_lost_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_PAUSE_SECONDS", 0.01)
    with cache(str(parquet_folder(tmp_path / "table", 100)), 1) as (address, workers, _):
        proxy = Interrupting(workers[0])
        reading = reader(address)
        reading._parts = [type(part)(f"grpc://127.0.0.1:{proxy.port}", part.rows) for part in reading._parts]
        found = ids(reading)
        proxy.shutdown()
    assert found == list(range(100))
    assert proxy.calls > 2


class Interrupting(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Sends ten rows of a ticket, and then an error, as when a connection is lost."""

    def __init__(self, worker: Worker):
        self.calls, self._worker = 0, worker
        super().__init__("grpc://127.0.0.1:0")

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.calls += 1
        with client_of(f"{TLS}:{self._worker.port}", KEY) as client:
            table = client.do_get(ticket).read_all()

        def some() -> Iterator[pa.RecordBatch]:
            yield from table.slice(0, 10 * self.calls).to_batches()
            if table.num_rows > 10 * self.calls:
                raise flight.FlightUnavailableError("connection lost")

        return flight.GeneratorStream(table.schema, some())


def test_reader_names_a_cache_that_has_ended(tmp_path: Path) -> None:
    with cache(str(parquet_folder(tmp_path / "table", 4)), 1) as (address, workers, _):
        reading = reader(address, wait_seconds=0)
        workers[0].shutdown()
        with pytest.raises(CacheLost, match=rf"the data cache at grpc\+tls://127.0.0.1:{workers[0].port} has not answered"):
            ids(reading)


def test_reader_of_a_worker_without_its_rows_fails(tmp_path: Path) -> None:
    with cache(str(parquet_folder(tmp_path / "table", 4)), 1) as (address, workers, _):
        reading = reader(address, wait_seconds=0)
        workers[0]._table = workers[0]._table.slice(0, 2)
        with pytest.raises(CacheLost, match="no rows 2 to 3 any more"):
            ids(reading)


def test_reader_takes_its_place_from_the_environment(tmp_path: Path) -> None:
    with cache(str(parquet_folder(tmp_path / "table", 6)), 1) as (address, _, _):
        assert ids(CacheReader(address, environ={**READ, "RANK": "1", "WORLD_SIZE": "2"})) == [3, 4, 5]
    with pytest.raises(CacheError, match="no reader 2 of 2"):
        CacheReader(address, environ={"RANK": "2", "WORLD_SIZE": "2"})
    with pytest.raises(CacheError, match="TRAIN_JOB_NAME is not set"):
        CacheReader(environ={})


def test_table_that_cannot_fit_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    with cache(str(parquet_folder(tmp_path / "table", 100)), 1, memory=1024**2) as (_, _, failures):
        pass
    assert "100 rows of this worker need at least" in failures[0]
    assert "worker_mem (WORKER_MEM) is 1 MiB" in failures[0]
