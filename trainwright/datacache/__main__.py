"""`python -m trainwright.datacache head|worker HOST PORT`: the programs of a cache's pods.

Variables: METADATA_LOC; WORKERS (the head's: addresses of the workers, with commas between them); WORKER_MEM_BYTES and
WORKER_COUNT (a worker's: its memory limit, and how many there are); HEALTH_PORT; START_SECONDS; TRAINWRIGHT_CACHE_ASSIGN_TOKEN
(the head gives workers their files with it); TRAINWRIGHT_CACHE_KEY (nobody connects without it), or CACHE_OPEN=true instead of
it: everybody reads. Exit code 1: the last line of the log is the reason.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import signal
import sys
import threading

from trainwright.api import names
from trainwright.datacache.flight import HEALTH_PORT, location_of
from trainwright.datacache.head import Head
from trainwright.datacache.health import Health, MemoryGuard
from trainwright.datacache.settings import OPEN, CacheError
from trainwright.datacache.table import open_table
from trainwright.datacache.worker import Worker

log = logging.getLogger(__name__)
_OPEN_FILES = 512
"""At most: a connection without a key takes 30 KiB of memory until gRPC closes it, after two minutes."""
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
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES if hard < 0 else min(_OPEN_FILES, hard), hard))
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # not each refused connection: anybody can make them
    try:
        key, token = _secrets()
        health = Health(arguments.host, int(os.environ.get("HEALTH_PORT") or HEALTH_PORT))
        location = location_of(f"{arguments.host}:{arguments.port}", key)
        if arguments.role == "head":
            workers = os.environ["WORKERS"].split(",")
            head = Head(location, open_table(os.environ["METADATA_LOC"]), workers, key=key, assign_token=token)
            head.load(float(os.environ.get("START_SECONDS") or 300))
        else:
            guard = MemoryGuard(int(os.environ.get("WORKER_MEM_BYTES") or 0), int(os.environ.get("WORKER_COUNT") or 1), _end)
            guard.start()
            _worker = Worker(location, os.environ["METADATA_LOC"], guard, _end_soon, key=key, assign_token=token)
        health.is_ready = True  # a worker is ready for the head, which sends the files; the head once the rows are in memory
        ended.wait()
    except CacheError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 128 + signal.SIGTERM


def _secrets() -> tuple[str, str]:
    """Return the key, empty for an open cache, and the head's token. Raises CacheError: nothing is open by omission."""
    key, token = (os.environ.get(name, "") for name in (names.CACHE_KEY_VARIABLE, names.CACHE_ASSIGN_VARIABLE))
    if not token:
        raise CacheError(f"{names.CACHE_ASSIGN_VARIABLE} is not set; its head and workers have it from the Secret of the cache")
    if not key and os.environ.get(names.CACHE_OPEN_VARIABLE) != "true":
        raise CacheError(f"{names.CACHE_KEY_VARIABLE} is not set; {names.CACHE_OPEN_VARIABLE}=true opens a cache to all instead")
    if not key:
        log.warning("event=open_cache variable=%s effect=%r", names.CACHE_OPEN_VARIABLE, OPEN)
    return key, token


def _end_soon(reason: str) -> None:
    threading.Timer(_FAILURE_SECONDS, _end, [reason]).start()


def _end(reason: str) -> None:
    """End this process at once: near its memory limit nothing else is sure to run."""
    os.write(2, f"{reason}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    os._exit(main())  # at once: the end of a Flight server waits for its readers
