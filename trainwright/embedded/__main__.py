"""The embedded control plane process: `python -m trainwright.embedded --home DIR`, started by `trainwright up`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path

from trainwright.api.rules.token_life import DEFAULT_MAXIMUM
from trainwright.controlplane.apiserver.http.serve import PortInUse
from trainwright.controlplane.apiserver.storage.journal import UnknownSchema
from trainwright.embedded.home import Home, HomeLocked
from trainwright.embedded.options import ALL_CONTROLLERS, parse_controllers, parse_gates
from trainwright.embedded.plane import ControlPlane
from trainwright.embedded.process_setup import ServiceManager, limit_memory, log_handler, tune_gc, tune_heap

_LOOK_SECONDS = 0.5
"""Python runs signal handlers in the main thread only: it has to run now and then, for signals that another thread receives, as after
SIGCONT."""
PORT_IN_USE, HOME_LOCKED, DATABASE_UNREADABLE = 3, 4, 5


def main() -> int:
    """Run until SIGTERM or SIGINT. Exit codes: 3 port in use, 4 home locked by another control plane, 5 database not readable."""
    arguments = _arguments()
    limit_memory()
    tune_heap()
    service_manager = ServiceManager.take_from(os.environ)
    home = Home.chosen(arguments.home)
    home.make()
    level = logging.DEBUG if os.environ.get("TRAINWRIGHT_DEBUG") else logging.INFO
    handlers = [log_handler(home.log)]
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", handlers=handlers)
    queues = arguments.queues.read_text("utf-8") if arguments.queues is not None else None
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        lock = home.lock()
    except HomeLocked as error:
        print(error, file=sys.stderr)
        return HOME_LOCKED
    home.withdraw()  # removes the stale announcement of a killed predecessor
    taken: PortInUse | None = None
    try:
        plane = ControlPlane(
            home,
            gates=parse_gates(arguments.feature_gates),
            node=not arguments.no_node,
            durability=arguments.durability,
            queues=queues,
            controllers=arguments.controllers,
            token_seconds=arguments.max_token_seconds,
            host_folders=tuple(arguments.host_folder),
        )
    except (UnknownSchema, sqlite3.Error) as error:
        os.close(lock)
        is_damaged = type(error) is sqlite3.DatabaseError  # not one of its kinds, as a full disk is
        advice = "; to start from a backup: trainwright up --restore FILE" if is_damaged else ""
        print(f"{home.database}: {error}{advice}", file=sys.stderr)
        return DATABASE_UNREADABLE
    try:
        running = plane.start(arguments.port)
        service_manager.notify("READY=1", f"STATUS=Serving {running.url}")
        tune_gc()
        while not stop.wait(_LOOK_SECONDS):
            continue
    except PortInUse as error:
        taken = error
    finally:
        service_manager.notify("STOPPING=1")
        plane.stop()
        os.close(lock)
    if taken is not None:
        print(taken.strerror, file=sys.stderr)  # `up` shows the last line of the log
        return PORT_IN_USE
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainwright.embedded")
    parser.add_argument("--home")
    parser.add_argument("--port", type=int)
    parser.add_argument("--no-node", action="store_true")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--controllers", type=parse_controllers, default=ALL_CONTROLLERS)
    chosen.add_argument("--no-controllers", dest="controllers", action="store_const", const=())
    parser.add_argument("--feature-gates", default="")
    parser.add_argument("--queues", type=Path)
    parser.add_argument("--max-token-seconds", type=int, default=DEFAULT_MAXIMUM)
    parser.add_argument("--host-folder", type=Path, action="append", default=[])
    parser.add_argument("--durability", choices=("normal", "full"), default="normal")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
