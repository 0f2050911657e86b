"""Whoever lacks the key of a cache, or its head's token, gets no rows, changes none, and ends nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import flight
from running_cache import KEY, PLAIN, READ, TLS, TOKEN, cache, ids, parquet_folder, reader, worker_of
from support.ports import free_ports
from support.waiting import eventually

from trainwright.datacache.flight import _ASSIGNMENT, assignment, client
from trainwright.datacache.head import Head
from trainwright.datacache.health import Health
from trainwright.datacache.ranges import DataFile, RowRange, Share
from trainwright.datacache.reader import CacheReader
from trainwright.datacache.settings import CacheError
from trainwright.datacache.table import open_table
from trainwright.materialize import RandomKeys

ROWS = 9
OTHER_KEY = RandomKeys().tls("data-cache.trainwright.dev")
SCHEMA = pa.schema([("x", pa.int64())])
PATH = flight.FlightDescriptor.for_path("0", "1")
UNREACHED = "failed to connect to all addresses|Could not finish writing"
SECONDS = flight.FlightCallOptions(timeout=20)


def put(connection: Any, batch: pa.RecordBatch | None, token: str | bytes | None) -> None:
    descriptor = PATH if token is None else flight.FlightDescriptor.for_command(token)
    writer, _ = connection.do_put(descriptor, SCHEMA if batch is None else batch.schema, SECONDS)
    with writer:
        if batch is not None:
            writer.write_batch(batch)


def exchange(connection: Any) -> Any:
    writer, found = connection.do_exchange(PATH, SECONDS)
    with writer:
        writer.begin(SCHEMA)
        return found.read_all()


METHODS: dict[str, Callable[[Any], Any]] = {
    "get_flight_info": lambda peer: peer.get_flight_info(PATH, SECONDS),
    "get_schema": lambda peer: peer.get_schema(PATH, SECONDS),
    "list_flights": lambda peer: list(peer.list_flights(options=SECONDS)),
    "do_get": lambda peer: peer.do_get(flight.Ticket(RowRange(0, ROWS).ticket()), SECONDS).read_all(),
    "do_put": lambda peer: put(peer, pa.record_batch([[1]], schema=SCHEMA), TOKEN),
    "do_exchange": exchange,
    "do_action": lambda peer: list(peer.do_action("load", SECONDS)),
    "list_actions": lambda peer: list(peer.list_actions(SECONDS)),
    "handshake": lambda peer: peer.authenticate_basic_token("head", TOKEN, SECONDS),
    "large message": lambda peer: peer.do_get(flight.Ticket(b"x" * 10_000_000), SECONDS).read_all(),
}


def stranger(port: int, kind: str) -> flight.FlightClient:
    """Return a client that connects as one of Trainer's, with TLS but no key, or with another key."""
    if kind == "plain":
        return flight.FlightClient(f"{PLAIN}:{port}")
    pem = {} if kind == "without a key" else {"cert_chain": OTHER_KEY, "private_key": OTHER_KEY}
    return flight.FlightClient(f"{TLS}:{port}", disable_server_verification=True, **pem)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Any], list[str]]]:
    with cache(str(parquet_folder(tmp_path_factory.mktemp("table"), ROWS)), 1) as started:
        yield started


@pytest.mark.parametrize("kind", ["plain", "without a key", "with another key"])
@pytest.mark.parametrize("role", ["head", "worker"])
@pytest.mark.parametrize("method", METHODS)
def test_call_without_the_key_is_refused(method: str, role: str, kind: str, running: tuple[str, list[Any], list[str]]) -> None:
    address, workers, failures = running
    port = int(address.rpartition(":")[2]) if role == "head" else workers[0].port
    with stranger(port, kind) as peer, pytest.raises((flight.FlightError, OSError), match=UNREACHED):
        METHODS[method](peer)
    assert sorted(ids(reader(address))) == list(range(ROWS))
    assert failures == []


@pytest.mark.medium
@pytest.mark.parametrize("role", ["head", "worker"])
def test_calls_of_a_reader_that_have_no_meaning_end_nothing(role: str, running: tuple[str, list[Any], list[str]]) -> None:
    address, workers, failures = running
    descriptors = [flight.FlightDescriptor.for_path(*path) for path in (["9" * 9000, "1"], ["-1", "1"], ["x"], [b"\xff", b"1"])]
    calls = [lambda peer, d=d: peer.get_flight_info(d, SECONDS) for d in [*descriptors, flight.FlightDescriptor.for_command(b"")]]
    calls += [
        lambda peer, t=t: peer.do_get(flight.Ticket(t), SECONDS).read_all() for t in (b"", b"\xff" * 16, b"\xff" * 8 + b"\0" * 8)
    ]
    for call in [*METHODS.values(), *calls]:
        with client(address if role == "head" else f"{TLS}:{workers[0].port}", KEY) as peer, suppress(Exception):
            call(peer)
    assert sorted(ids(reader(address))) == list(range(ROWS))
    assert failures == []


def test_reader_refuses_a_cache_with_another_key(running: tuple[str, list[Any], list[str]]) -> None:
    with pytest.raises(CacheError, match="has not answered"):
        CacheReader(running[0], rank=0, readers=1, wait_seconds=0, environ={"TRAINWRIGHT_CACHE_KEY": OTHER_KEY})


SHARE = assignment(0, Share((DataFile("part-0.parquet", 1),), RowRange(0, 0)))


def message(start: int | None, end: int, paths: list[str | None]) -> pa.RecordBatch:
    values = zip([0, start, end, paths], _ASSIGNMENT, strict=True)
    return pa.record_batch([pa.array([value], field.type) for value, field in values], schema=_ASSIGNMENT)


TWO = pa.concat_tables([pa.table(SHARE)] * 2).combine_chunks().to_batches()[0]
NUMBERS = st.integers(0, 2**64 - 1)
MALFORMED = st.one_of(
    st.sampled_from(
        [None, SHARE.slice(0, 0), pa.record_batch([[1]], schema=SCHEMA), TWO, message(None, 0, ["a"]), message(0, 0, [None])]
    ),
    st.builds(message, NUMBERS, NUMBERS, st.just([])),
    st.builds(lambda low, more: message(low + more, low, ["a"]), st.integers(0, 2**63), st.integers(1, 2**62)),
    st.builds(message, st.just(0), st.integers(2**63, 2**64 - 1), st.just(["a"])),
)
WELL_FORMED = st.builds(message, NUMBERS, NUMBERS, st.lists(st.text(max_size=5), max_size=3))


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(
    batch=MALFORMED | WELL_FORMED, token=st.sampled_from([None, "", KEY, TOKEN[:-1], TOKEN + "t", TOKEN]) | st.binary(max_size=70)
)
def test_second_assignment_is_refused_whatever_it_is(
    batch: pa.RecordBatch | None, token: str | bytes | None, running: tuple[str, list[Any], list[str]]
) -> None:
    address, workers, failures = running
    with client(f"{TLS}:{workers[0].port}", KEY) as peer, pytest.raises((flight.FlightError, pa.ArrowInvalid)):
        put(peer, batch, token)
    assert len(ids(reader(address))) == ROWS
    assert failures == []


@pytest.mark.medium
@settings(max_examples=40, deadline=None)
@given(batch=MALFORMED)
def test_malformed_assignment_leaves_a_worker_free_for_its_own(batch: pa.RecordBatch | None, free: Any) -> None:
    worker, failures = free
    with client(f"{TLS}:{worker.port}", KEY) as peer, pytest.raises(pa.ArrowInvalid, match="no assignment"):
        put(peer, batch, TOKEN)
    assert (worker._assigned, failures) == (None, [])


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, list[str]]]:
    failures: list[str] = []
    worker = worker_of(str(parquet_folder(tmp_path_factory.mktemp("free"), ROWS)), failures)
    yield worker, failures
    worker.shutdown()


def test_reader_cannot_give_a_free_worker_its_files(free: tuple[Any, list[str]]) -> None:
    worker, failures = free
    with client(f"{TLS}:{worker.port}", KEY) as peer, pytest.raises(flight.FlightUnauthorizedError, match="only the head"):
        put(peer, SHARE, KEY)
    assert (worker._assigned, failures) == (None, [])


def test_same_assignment_again_is_answered_as_done(running: tuple[str, list[Any], list[str]]) -> None:
    address, workers, failures = running
    paths, given_rows = workers[0]._assigned
    message = assignment(0, Share(tuple(DataFile(path, 0) for path in paths), given_rows))
    with client(f"{TLS}:{workers[0].port}", KEY) as peer:
        put(peer, message, TOKEN)
    assert len(ids(reader(address))) == ROWS
    assert failures == []


def test_open_cache_answers_clients_of_trainers_and_takes_files_from_its_head_only(tmp_path: Path) -> None:
    with cache(str(parquet_folder(tmp_path, ROWS)), 1, key="", assign_token=TOKEN) as (address, workers, failures):
        assert len(ids(CacheReader(address, rank=0, readers=1, environ={}))) == ROWS
        for token in (None, "", KEY):
            with flight.FlightClient(f"{PLAIN}:{workers[0].port}") as peer, pytest.raises(flight.FlightUnauthorizedError):
                put(peer, SHARE, token)
        assert (len(ids(CacheReader(address, rank=0, readers=1, environ=READ))), failures) == (ROWS, [])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("given_variables", "words"),
    [
        ({}, "TRAINWRIGHT_CACHE_ASSIGN_TOKEN is not set"),
        (
            {"TRAINWRIGHT_CACHE_ASSIGN_TOKEN": TOKEN},
            "TRAINWRIGHT_CACHE_KEY is not set; CACHE_OPEN=true opens a cache to all instead",
        ),
        ({"TRAINWRIGHT_CACHE_ASSIGN_TOKEN": TOKEN, "CACHE_OPEN": "false"}, "TRAINWRIGHT_CACHE_KEY is not set"),
        ({"CACHE_OPEN": "true"}, "TRAINWRIGHT_CACHE_ASSIGN_TOKEN is not set"),
        ({"TRAINWRIGHT_CACHE_ASSIGN_TOKEN": TOKEN, "TRAINWRIGHT_CACHE_KEY": KEY}, "METADATA_LOC=/nowhere"),
        ({"TRAINWRIGHT_CACHE_ASSIGN_TOKEN": TOKEN, "CACHE_OPEN": "true"}, "METADATA_LOC=/nowhere"),
    ],
)
def test_program_starts_with_the_key_or_the_switch_and_logs_neither(given_variables: dict[str, str], words: str) -> None:
    env = {**os.environ, "METADATA_LOC": "/nowhere", "WORKERS": "127.0.0.1:1", "HEALTH_PORT": "0", **given_variables}
    command = [sys.executable, "-m", "trainwright.datacache", "head", "127.0.0.1", "0"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert words in ended.stderr.splitlines()[-1]
    is_open = given_variables.get("CACHE_OPEN") == "true" and "TRAINWRIGHT_CACHE_ASSIGN_TOKEN" in given_variables
    assert ("every process of this machine can read the rows" in ended.stderr) is is_open
    assert TOKEN not in ended.stderr
    assert "PRIVATE KEY" not in ended.stderr


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which only Linux has: run it there")
def test_connections_without_a_key_take_few_files_of_a_worker_and_do_not_end_it(tmp_path: Path) -> None:
    port, health = free_ports(2)
    table = str(parquet_folder(tmp_path, ROWS))
    variables = {"METADATA_LOC": table, **READ, "TRAINWRIGHT_CACHE_ASSIGN_TOKEN": TOKEN, "HEALTH_PORT": str(health)}
    command = [sys.executable, "-m", "trainwright.datacache", "worker", "127.0.0.1", str(port)]
    with subprocess.Popen(command, env={**os.environ, **variables}) as process, ExitStack() as ends:
        ends.callback(process.kill)
        eventually(lambda: is_listening(port), what="the worker")
        with ExitStack() as held:
            for _ in range(700):
                held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            eventually(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) > 500, what="a worker with many connections")
            assert len(os.listdir(f"/proc/{process.pid}/fd")) <= 512
        head = Head("grpc+tls://127.0.0.1:0", open_table(table), [f"127.0.0.1:{port}"], key=KEY, assign_token=TOKEN)
        ends.callback(head.shutdown)
        head.load(60)
        assert len(ids(reader(f"{TLS}:{head.port}"))) == ROWS


def is_listening(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.medium
def test_health_port_takes_few_threads_and_answers_again() -> None:
    health = Health("127.0.0.1", 0)
    health.is_ready = True
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(socket.create_connection(("127.0.0.1", health.port), timeout=10))
        assert threading.active_count() <= 64
    eventually(lambda: answer(health.port) == b"HTTP/1.0 200 OK", what="the health port")
    health.close()


def answer(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET /ready HTTP/1.0\r\n\r\n")
        with suppress(ConnectionError):
            return connection.recv(200).split(b"\r\n")[0]
    return b""
