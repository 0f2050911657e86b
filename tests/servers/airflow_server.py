"""A real Airflow: API server, scheduler, DAG processor and triggerer, on loopback, with a database and a DAGs folder of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

from support.airflow_minors import NEWEST, AirflowMinor
from support.ports import free_ports
from support.waiting import eventually

from trainwright.quickstart.airflow_dag import configure

_PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
_HEALTH = ("metadatabase", "scheduler", "dag_processor", "triggerer")


@dataclass(frozen=True)
class AirflowServer:
    """Its REST interface, its parts, and the processes behind a task."""

    url: str
    home: Path
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    left: list[int] = field(default_factory=list, repr=False)
    """Process groups whose leader was killed alone."""
    python: Path = Path(sys.executable)
    version: str = NEWEST
    adopts_tasks: bool = False
    """Whether a new scheduler takes over the tasks of a killed one with their workers, as with CeleryExecutor."""
    parts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)
    """The process of each part, by its name; a second triggerer is `triggerer-2`."""

    def start(self, part: str) -> None:
        """Start a part, which leads a process group of its own."""
        words = ["celery", "worker"] if part == "celery-worker" else [next(name for name in _PARTS if part.startswith(name))]
        command = [str(self.python), "-P", "-m", "airflow", *words]
        with open(self.home / f"{part}.log", "ab") as output:
            self.parts[part] = subprocess.Popen(
                command, env=self.environment, stdout=output, stderr=output, start_new_session=True
            )

    def end(self, part: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal to all processes of a part, and wait until it has ended."""
        process = self.parts.pop(part)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def kill_alone(self, part: str) -> None:
        """Kill the process of a part; those that it has started live on, to the end of the server."""
        process = self.parts.pop(part)
        self.left.append(process.pid)
        process.kill()
        process.wait(10)

    @property
    def has_workers_that_heed_signals(self) -> bool:
        """Whether a worker of LocalExecutor ends on SIGTERM: those of Airflow 3.1 and 3.2 go on."""
        return self.version not in ("3.1", "3.2")

    def command(self, *words: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a command of Airflow's command line, in a process group of its own, whose output goes to a file."""
        with open(output, "ab") as file:
            command = [str(self.python), "-P", "-m", "airflow", *words]
            return subprocess.Popen(command, env=self.environment, stdout=file, stderr=file, start_new_session=True)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request below `/api/v2/`; the answer's JSON. Raises HTTPError.

        A request that found Airflow's database locked, which is a file here, did nothing, and is made again.
        """
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", **self._authorization()}
        request = urllib.request.Request(f"{self.url}/api/v2/{path}", data, headers, method=method)
        for tries_left in (2, 1, 0):
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return json.loads(answer.read() or b"null")
            except HTTPError as error:
                if error.code != 500 or not tries_left:
                    raise
        raise AssertionError

    def _authorization(self) -> dict[str, str]:
        """The header that Airflow 3.1 asks of everybody, also where all are admins."""
        if self.version != "3.1":
            return {}
        with urllib.request.urlopen(f"{self.url}/auth/token", timeout=20) as answer:
            return {"Authorization": f"Bearer {json.loads(answer.read())['access_token']}"}

    def is_healthy(self) -> bool:
        try:
            health = self.call("GET", "monitor/health")
        except OSError:
            return False
        return all((health.get(part) or {}).get("status") == "healthy" for part in _HEALTH)

    def knows(self, dag: str) -> bool:
        try:
            self.call("PATCH", f"dags/{dag}", {"is_paused": False})
        except HTTPError as error:
            if error.code != 404:
                raise
            return False
        return True

    def trigger(self, dag: str, run: str) -> None:
        self.call("POST", f"dags/{dag}/dagRuns", {"dag_run_id": run, "logical_date": None, "conf": {}})

    def task(self, dag: str, run: str, task: str = "train") -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}")
        return found

    def run_state(self, dag: str, run: str) -> str:
        return str(self.call("GET", f"dags/{dag}/dagRuns/{quote(run)}")["state"])

    def tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        """All task instances of a run, with mapped ones."""
        found: list[dict[str, Any]] = self.call("GET", f"dags/{dag}/dagRuns/{quote(run)}/taskInstances?limit=500")[
            "task_instances"
        ]
        return found

    def mark_run(self, dag: str, run: str, state: str) -> None:
        self.call("PATCH", f"dags/{dag}/dagRuns/{quote(run)}", {"state": state})

    def clear(self, dag: str, run: str) -> None:
        body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True}
        self.call("POST", f"dags/{dag}/clearTaskInstances", body)

    def mark(self, dag: str, run: str, state: str, task: str = "train") -> None:
        self.call("PATCH", f"dags/{dag}/dagRuns/{quote(run)}/taskInstances/{task}", {"new_state": state})

    def log(self, dag: str, run: str, files: str = "attempt=*.log*", task: str = "train") -> str:
        """What the tries of a task and their triggers said."""
        folder = self.home / "logs" / f"dag_id={dag}" / f"run_id={run}" / f"task_id={task}"
        return "\n".join(path.read_text("utf-8") for path in sorted(folder.glob(files)))


def worker_of(pid: int) -> int:
    """The process that supervises a task's process: its parent."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1])


@contextmanager
def running_airflow(
    home: Path, dags: Path, environment: dict[str, str], minor: AirflowMinor | None = None
) -> Iterator[AirflowServer]:
    """Migrate, start, wait until all parts are healthy; all their process groups end with the block."""
    minor = minor or AirflowMinor()
    port, *log_ports = free_ports(3)
    url = f"http://127.0.0.1:{port}"
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        **configure(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__PARALLELISM": "6",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(log_ports[0]),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(log_ports[1]),
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "2",
        # A scheduler that a loaded machine keeps from its heartbeat takes its own tasks for orphans.
        "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        **environment,
        **minor.environment,
    }
    migrate = [str(minor.python), "-P", "-m", "airflow", "db", "migrate"]
    subprocess.run(migrate, env=env, check=True, capture_output=True, timeout=120)
    if (database := home / "airflow.db").is_file():
        _never_reuse_ids(database, "trigger")
    server = AirflowServer(url, home, env, python=minor.python, version=minor.version, adopts_tasks=bool(minor.more_parts))
    try:
        for part in (*_PARTS, *minor.more_parts):
            server.start(part)
        eventually(server.is_healthy, 120, "Airflow to be healthy")
        yield server
    finally:
        for process in server.parts.values():
            _end_group(process)
        for group in server.left:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


def _never_reuse_ids(database: Path, table: str) -> None:
    """Let SQLite count the ids of an empty table on, as the databases of servers do.

    It gives the id of a deleted row again otherwise. A triggerer that is just starting the deleted trigger then takes the next one for
    the same, and never starts it.
    """
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type = 'index'", (table,)
        )
        create, *indexes = (sql for (sql,) in rows)
        create, columns = re.subn(r"\bid INTEGER NOT NULL", "id INTEGER PRIMARY KEY AUTOINCREMENT", create)
        create, keys = re.subn(r",\s*CONSTRAINT \w+ PRIMARY KEY \(id\)", "", create)
        assert (columns, keys) == (1, 1), create
        for statement in ("PRAGMA foreign_keys = OFF", f'DROP TABLE "{table}"', create, *indexes):
            connection.execute(statement)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
