"""`python -m trainwright.datacache head|worker HOST PORT`: the programs of a cache's pods.

Variables: METADATA_LOC; WORKERS (the head's: addresses of the workers, with commas between them); WORKER_MEM_BYTES and
WORKER_COUNT (a worker's: its memory limit, and how many there are); HEALTH_PORT; START_SECONDS. Exit code 1: the last line of the
log is the reason.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading

from trainwright.datacache.errors import CacheError
from trainwright.datacache.flight import HEALTH_PORT
from trainwright.datacache.head import Head
from trainwright.datacache.health import Health
from trainwright.datacache.memory import MemoryGuard
from trainwright.datacache.table import open_table
from trainwright.datacache.worker import Worker

_FAILURE_SECONDS = 1.0
"""A worker that fails ends so much later, in which it can answer the head."""


def main() -> int:
    """Serve until SIGTERM, which is a failure for those who read: a cache ends when its JobSet is deleted."""
    parser = argparse.ArgumentParser(prog="trainwright.datacache")
    parser.add_argument("role", choices=["head", "worker"])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    health = Health(arguments.host, int(os.environ.get("HEALTH_PORT") or HEALTH_PORT))
    location = f"grpc://{arguments.host}:{arguments.port}"
    try:
        if arguments.role == "head":
            _lead(location, health, ended)
        else:
            _work(location, health, ended)
    except CacheError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 128 + signal.SIGTERM


def _lead(location: str, health: Health, ended: threading.Event) -> None:
    workers = [f"grpc://{address}" for address in os.environ["WORKERS"].split(",")]
    head = Head(location, open_table(os.environ["METADATA_LOC"]), workers)
    head.load(float(os.environ.get("START_SECONDS") or 300))
    health.is_ready = True
    ended.wait()


def _work(location: str, health: Health, ended: threading.Event) -> None:
    guard = MemoryGuard(int(os.environ.get("WORKER_MEM_BYTES") or 0), int(os.environ.get("WORKER_COUNT") or 1), _end)
    guard.start()
    _worker = Worker(location, os.environ["METADATA_LOC"], guard, _end_soon)
    health.is_ready = True  # for the head, which sends the files; the head is ready once the rows are in memory
    ended.wait()


def _end_soon(reason: str) -> None:
    threading.Timer(_FAILURE_SECONDS, _end, [reason]).start()


def _end(reason: str) -> None:
    """End this process at once: near its memory limit nothing else is sure to run."""
    os.write(2, f"{reason}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    os._exit(main())  # at once: the end of a Flight server waits for its readers
