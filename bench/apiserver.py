"""Benchmarks the embedded API server, in one process on one core with TLS: creates, gets, watches, long lists, memory, startup.

The baseline, measured in the same run by the same clients, is a bare Starlette handler over TLS with one sqlite insert: a request
without admission, resource versions, managed fields and watches. A real API server with etcd handles 200 to 245 creates of TrainJobs
per second on this kind of machine (recorded, not run here). Rates are given per second of wall clock time, and per second of the
server's CPU time, which is independent of other load on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import signal
import sqlite3
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainwright.api.kinds import JOB, JOBSET, POD, SERVICE, TRAINJOB, Kind
from trainwright.controlplane.apiserver.auth.credentials import load_credentials
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.endpoints.definitions import seed_definitions
from trainwright.controlplane.apiserver.http.app import Api
from trainwright.controlplane.apiserver.http.serve import serve
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.streaming.websocket import OpenStreams
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane
from trainwright.embedded.process_setup import tune_gc
from trainwright.runtimes import bundled_runtime

CLIENTS = 8
SECONDS = 5.0
WATCHERS = 200
JOBS = 10_000
SAMPLE = "sample-job"
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
GOALS = {"creates": 2500, "list": 50, "rss": 300, "start": 5}


def trainjob(name: str) -> bytes:
    trainer = {"numNodes": 2, "image": "ghcr.io/example/train:1.4", "command": ["python", "train.py"]}
    metadata = {"name": name, "namespace": "default", "labels": {"team": "vision"}}
    spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}
    return orjson.dumps({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec})


def serve_here(home: Path) -> None:
    """The server process: prints its port and startup time, then serves until it is terminated."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    began = time.monotonic()
    credentials = load_credentials(home)
    server = ResourceServer(Store(home / "state.db"))
    seed_definitions(server, "2026-01-01T00:00:00Z")
    app = Api(server, Tokens(credentials.admin_token, credentials.signing_key))
    _announce(app, home, began)


class BareHandler:
    """A minimal write over HTTP."""

    def __init__(self, database: sqlite3.Connection):
        self._database = database
        self.streams = OpenStreams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        self._database.execute("INSERT INTO log (data) VALUES (?)", (body,))
        await Response(body, 201, media_type="application/json")(scope, receive, send)


def serve_bare(home: Path) -> None:
    """The baseline: one insert and a response."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    load_credentials(home)
    database = sqlite3.connect(home / "bare.db", isolation_level=None, check_same_thread=False)
    database.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; CREATE TABLE log (id INTEGER PRIMARY KEY, data BLOB)"
    )

    _announce(BareHandler(database), home, time.monotonic())


def _announce(app: Any, home: Path, began: float) -> None:
    credentials = load_credentials(home)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    serving = serve(app, cert=credentials.certificate, key=credentials.key)
    print(serving.port, time.monotonic() - began, flush=True)
    tune_gc()
    signal.sigwait({signal.SIGTERM})
    serving.stop()


@dataclass
class Server:
    port: int
    started: float
    pid: int
    home: Path

    def cpu(self) -> float:
        """CPU time so far, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


@contextmanager
def running(home: Path, mode: str = "--serve") -> Iterator[Server]:
    process = subprocess.Popen([sys.executable, __file__, mode, str(home)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        port, started = process.stdout.readline().split()
        yield Server(int(port), float(started), process.pid, home)
    finally:
        process.terminate()
        process.wait(30)


class Connection:
    """A minimal client: HTTP/1.1 over a persistent TLS connection."""

    @classmethod
    async def open(cls, server: Server) -> Connection:
        credentials = load_credentials(server.home)
        context = ssl.create_default_context(cadata=credentials.authority.read_text())
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname="localhost"
        )
        self.head = f"Host: localhost\r\nAuthorization: Bearer {credentials.admin_token}\r\nAccept: application/json\r\n"
        return self

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{self.head}{length}\r\n".encode() + body)

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        self.send(method, path, body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        content = await self.reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 2"):
            raise SystemExit(f"{method} {path}: {head.decode()}{content[:500].decode()}")
        return content


@dataclass
class Rate:
    count: int
    seconds: float
    cpu: float
    times: list[float]

    def __str__(self) -> str:
        p99 = statistics.quantiles(self.times, n=100)[98] * 1e3
        return f"{self.count / self.seconds:8.0f}/s   {self.count / self.cpu:8.0f} per second of the server's core   p99 {p99:6.1f} ms"


async def rate(server: Server, what: str, prefix: str) -> Rate:
    """The request rate of eight clients."""
    connections = [await Connection.open(server) for _ in range(CLIENTS)]
    times: list[float] = []
    end = time.monotonic() + SECONDS

    async def client(number: int) -> None:
        connection, count = connections[number], 0
        while (began := time.monotonic()) < end:
            if what == "create":
                await connection.ask("POST", TRAINJOBS, trainjob(f"{prefix}-{number}-{count}"))
            else:
                await connection.ask("GET", f"{TRAINJOBS}/{prefix}-{number}-{count % 50}")
            times.append(time.monotonic() - began)
            count += 1

    cpu, began = server.cpu(), time.monotonic()
    await asyncio.gather(*map(client, range(CLIENTS)))
    return Rate(len(times), time.monotonic() - began, server.cpu() - cpu, times)


def _watch(server: Server, count: int, ready: Any, received: Any) -> None:
    """A process with many watchers; `received` counts the events of all of them."""

    async def one(opened: list[int], events: list[int]) -> None:
        connection = await Connection.open(server)
        connection.send("GET", f"{TRAINJOBS}?watch=true&resourceVersion=0")
        await connection.reader.readuntil(b"\r\n\r\n")
        opened.append(1)
        if len(opened) == count:
            ready.set()
        while line := await connection.reader.readline():
            if line.startswith(b'{"type"'):
                events[0] += 1
                received.value = events[0]

    async def all_of_them() -> None:
        opened: list[int] = []
        events = [0]
        await asyncio.gather(*(one(opened, events) for _ in range(count)))

    with suppress(asyncio.IncompleteReadError, ConnectionError):
        uvloop.run(all_of_them())


async def prepare(server: Server) -> None:
    connection = await Connection.open(server)
    runtime = bundled_runtime("torch-distributed")
    await connection.ask("POST", RUNTIMES, orjson.dumps(runtime))


def rates(home: Path) -> None:
    bare_home = home / "bare"
    bare_home.mkdir()
    with running(bare_home, "--serve-bare") as peer:
        bare = uvloop.run(rate(peer, "create", "bare"))
        print(f"bare handler, one insert  {bare}")
    with running(home) as server:
        uvloop.run(prepare(server))
        creates = uvloop.run(rate(server, "create", "job"))
        ratio = (creates.count / creates.cpu) / (bare.count / bare.cpu)
        print(f"creates, {CLIENTS} clients        {creates}   goal {GOALS['creates']}/s   ratio {ratio:.2f}")
        gets = uvloop.run(rate(server, "get", "job"))
        print(f"gets, {CLIENTS} clients           {gets}")
        ready, received = multiprocessing.Event(), multiprocessing.Value("q")
        watchers = multiprocessing.Process(target=_watch, args=(server, WATCHERS, ready, received), daemon=True)
        watchers.start()
        ready.wait(60)
        watched = uvloop.run(rate(server, "create", "seen"))
        print(f"creates, {WATCHERS} watchers     {watched}")
        watchers.kill()


def sample() -> dict[Kind, list[dict[str, Any]]]:
    """A finished TrainJob with two nodes and all objects created for it."""
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(Home(Path(folder)), gates=FeatureGates(), node=False)
        plane.start()
        cluster = plane.cluster
        cluster.create(orjson.loads(trainjob(SAMPLE)))
        while len(pods := cluster.list(POD).items) < 2:
            time.sleep(0.05)
        for pod in pods:
            cluster.patch(POD, pod["metadata"]["name"], {"status": _ended(pod)}, "default", subresource="status")
        while not any(
            condition["type"] == "Complete"
            for condition in (cluster.get(TRAINJOB, SAMPLE, "default").get("status") or {}).get("conditions") or []
        ):
            time.sleep(0.05)
        found = {kind: cluster.list(kind, "default").items for kind in (TRAINJOB, JOBSET, JOB, POD, SERVICE)}
        plane.stop()
    return found


def _ended(pod: dict[str, Any]) -> dict[str, Any]:
    moment = "2026-01-01T00:10:00Z"
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": moment}
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        for container in pod["spec"]["containers"]
    ]
    conditions = [
        {"type": name, "status": "False", "reason": "PodCompleted", "lastTransitionTime": moment, "lastProbeTime": None}
        for name in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {"phase": "Succeeded", "startTime": moment, "conditions": conditions, "containerStatuses": statuses}


def fill(home: Path) -> tuple[int, int]:
    """Fill a store with ten thousand of them; returns the numbers of objects and bytes."""
    texts = {kind: [orjson.dumps(obj).decode() for obj in objects] for kind, objects in sample().items()}
    uids = sorted({uid for group in texts.values() for text in group for uid in _UID.findall(text)})
    store, objects, size = Store(home / "state.db"), 0, 0
    for first in range(0, JOBS, 100):
        with store.locked():
            for number in range(first, first + 100):
                fresh = {uid: str(uuid.uuid4()) for uid in uids}
                for kind, group in texts.items():
                    for text in group:
                        own = _UID.sub(lambda found, fresh=fresh: fresh[found[0]], text).replace(SAMPLE, f"job-{number:05d}")
                        obj = orjson.loads(own)
                        store.put(kind.resource, "default", obj["metadata"]["name"], obj)
                        objects, size = objects + 1, size + len(own)
    store.close()
    return objects, size


async def lists(server: Server) -> None:
    connection = await Connection.open(server)
    for what, query in (
        ("list of 500 out of 10,000", "?limit=500"),
        ("  a page in the middle", ""),
        ("list of all 10,000", ""),
        ("list by a label", "?labelSelector=team%3Dvision&limit=500"),
    ):
        times = []
        for _ in range(5):
            if what.startswith("  "):
                page = orjson.loads(await connection.ask("GET", f"{TRAINJOBS}?limit=5000"))
                query = f"?limit=500&continue={page['metadata']['continue']}"
            began = time.monotonic()
            size = len(await connection.ask("GET", TRAINJOBS + query))
            times.append(time.monotonic() - began)
        print(f"{what:25} {min(times) * 1e3:8.1f} ms  ({size / 1e6:.1f} MB)")


def store_of_many(home: Path) -> None:
    home.mkdir()
    objects, size = fill(home)
    with running(home) as server:
        print(f"start with {objects} objects ({size / 1e6:.0f} MB of JSON)  {server.started:.2f} s   goal {GOALS['start']} s")
        print(f"resident after start       {server.rss():8.0f} MB   goal {GOALS['rss']} MB")
        uvloop.run(lists(server))
        print(f"resident after the lists   {server.rss():8.0f} MB")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--serve", type=Path, help=argparse.SUPPRESS)  # the program starts itself with these two
    arguments.add_argument("--serve-bare", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.serve:
        return serve_here(given.serve)
    if given.serve_bare:
        return serve_bare(given.serve_bare)
    with tempfile.TemporaryDirectory() as folder:
        rates(Path(folder))
        store_of_many(Path(folder) / "many")
    return None


if __name__ == "__main__":
    main()
