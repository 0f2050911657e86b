"""What CeleryExecutor needs: a broker (redis-server of the system) and a database (Postgres from a wheel), on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from support.airflow_minors import NEWEST, AirflowMinor, minor_with, pins
from support.client_environments import Unavailable
from support.ports import free_ports

_REQUIREMENTS = ("apache-airflow-providers-celery", "redis", "psycopg2-binary", "asyncpg", "pgserver")
_POSTGRES = """
import pgserver, sys
print(pgserver.get_server(sys.argv[1], cleanup_mode="stop").get_uri(), flush=True)
sys.stdin.read()
"""


@contextmanager
def celery_backend(folder: Path, wheel: Path) -> Iterator[AirflowMinor]:
    """The newest Airflow with CeleryExecutor and one worker, until the block ends. Raises Unavailable without redis-server."""
    redis = os.environ.get("TRAINWRIGHT_REDIS") or shutil.which("redis-server")
    if not redis:
        raise Unavailable("redis-server is not installed (package redis-server of Debian)")
    minor = minor_with(f"{NEWEST}-celery", (*pins(NEWEST), *_REQUIREMENTS), wheel)
    (port,) = free_ports(1)
    broker = subprocess.Popen([redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)])
    postgres = subprocess.Popen(
        [minor.python, "-c", _POSTGRES, str(folder / "postgres")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert postgres.stdout is not None
    assert postgres.stdin is not None
    try:
        database = postgres.stdout.readline().strip().removeprefix("postgresql://")
        environment = {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}",
            "AIRFLOW__CELERY__BROKER_URL": f"redis://127.0.0.1:{port}/0",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+postgresql+psycopg2://{database}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "6",
        }
        yield replace(minor, environment={**minor.environment, **environment}, more_parts=("celery-worker",))
    finally:
        postgres.stdin.close()
        postgres.wait(30)
        broker.terminate()
        broker.wait(10)
