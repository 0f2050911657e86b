"""Jobs of tasks that have ended are found and stopped by the triggerer's own process, and no others."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.api.kinds import TRAINJOB, Kind
from trainwright.api.objects import is_deleting, name_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.wait.resume_job import resume_job

left_jobs = OnFirstUse("trainwright.operators.deferral.left_jobs")
records = OnFirstUse("trainwright.operators.deferral.airflow_records")
hook = OnFirstUse("trainwright.operators.hook")
plugin = OnFirstUse("trainwright.operators.plugin")
pytestmark = pytest.mark.medium
Job = dict[str, Any]


class Scene:
    """The cluster; which tasks have ended, by their ids; and which places Airflow knows."""

    def __init__(self, cluster: EmbeddedCluster):
        self.cluster, self.ended, self.places = cluster, {}, {records.Place(None)}
        cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        self.questions: list[list[str]] = []

    def job(self, name: str, noted: str | None = None, namespace: str = "default", **changed: Any) -> Job:
        task = {"dag_id": "d", "task_id": name, "run_id": "r", "map_index": -1, "on_cancel": "suspend", "id": name, **changed}
        annotations = {names.OWNER_ANNOTATION: f"airflow/d/d/r/{name}"}
        if noted != "":
            annotations[names.AWAITED_BY_ANNOTATION] = noted or json.dumps(task)
        labels = {names.MANAGED_BY_LABEL: "trainwright", names.DAG_LABEL: "d"}
        metadata = {"name": name, "namespace": namespace, "annotations": annotations, "labels": labels}
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"]}}
        return self.cluster.create(
            {"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": metadata, "spec": spec}
        )

    def running(self) -> set[str]:
        jobs = self.cluster.list(TRAINJOB).items
        return {name_of(job) for job in jobs if not job["spec"].get("suspend") and not is_deleting(job)}


@pytest.fixture
def scene(connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(connected)

    def ended_tasks(tasks: list[Any]) -> dict[str, str]:
        made.questions.append(sorted(task.task_id for task in tasks))
        return {task.uid: made.ended[task.id] for task in tasks if task.id in made.ended}

    monkeypatch.setattr(left_jobs, "known_places", lambda: made.places)
    monkeypatch.setattr(left_jobs, "settings_of_connection", lambda _conn_id: None)
    monkeypatch.setattr(left_jobs, "ended_tasks", ended_tasks)
    monkeypatch.setattr(left_jobs, "_may_list_everywhere", lambda client: not getattr(client, "is_namespaced", False))
    return made


@pytest.fixture
def search(scene: Scene) -> Iterator[Any]:
    made = left_jobs.LeftJobs()
    yield made
    for watch in made.watches.values():
        watch.reflector.stop.set()


def look_until(search: Any, condition: Callable[[], Any], what: str) -> None:
    def looked() -> Any:
        search.look()
        return condition()

    eventually(looked, 20, what)


def test_jobs_whose_tasks_have_ended_are_stopped(scene: Scene, search: Any, caplog: pytest.LogCaptureFixture) -> None:
    scene.ended |= {"failed": "failed", "skipped": "skipped", "deleted": "failed", "elsewhere": "success"}
    for name in ("failed", "skipped", "deferred"):
        scene.job(name)
    scene.job("deleted", on_cancel="delete")
    scene.job("elsewhere", namespace="other")
    scene.job("notes-nothing", noted="")
    hostile = {
        "list": {"dag_id": ["d"]},
        "nul": {"run_id": "r\0"},
        "surrogate": {"run_id": "\ud800"},
        "long": {"task_id": "t" * 1000},
        "index": {"map_index": "0; DROP TABLE dag"},
        "uid": {"uid": "another"},
        "more": {"more": 1},
        "policy": {"on_cancel": "explode", "id": "failed"},
    }
    for name, changed in hostile.items():
        scene.job(name, **changed)
    scene.job("deep", noted="[" * 150_000)
    scene.job("unreadable", noted="[1")
    stays = {"deferred", "notes-nothing", "deep", "unreadable", *hostile}
    look_until(search, lambda: scene.running() == stays, "only jobs of tasks that go on")
    assert sum("event=left_job trainjob=" in record.getMessage() for record in caplog.records) == 4


def test_database_is_asked_only_about_jobs_that_run(scene: Scene, search: Any) -> None:
    look_until(search, lambda: search.watches, "the watch")
    assert scene.questions == []
    scene.job("runs")
    stopped = scene.job("stopped")
    scene.cluster.patch(TRAINJOB, name_of(stopped), {"spec": {"suspend": True}}, "default")
    look_until(search, lambda: ["runs"] in scene.questions, "a question about the job that runs")


def test_job_that_a_person_has_resumed_is_left_alone(scene: Scene, search: Any) -> None:
    scene.ended["failed"] = "failed"
    job = scene.job("failed")
    look_until(search, lambda: not scene.running(), "the job to be suspended")
    resume_job(scene.cluster, job)
    look_until(search, lambda: scene.running() == {"failed"}, "the job to be resumed")
    scene.job("later", id="failed")
    look_until(search, lambda: scene.running() == {"failed"}, "only the other job to be suspended")


def test_job_that_another_task_has_adopted_meanwhile_is_left_alone(
    scene: Scene, search: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scene.job("adopted")
    look_until(search, lambda: scene.questions, "the search to know the job")

    def ended_tasks(tasks: list[Any]) -> dict[str, str]:
        noted = {names.AWAITED_BY_ANNOTATION: "{}"}
        scene.cluster.patch(TRAINJOB, name_of(job), {"metadata": {"annotations": noted}}, "default")
        return {task.uid: "failed" for task in tasks}

    monkeypatch.setattr(left_jobs, "ended_tasks", ended_tasks)
    search.look()
    assert scene.running() == {"adopted"}


def test_cluster_that_does_not_answer_holds_up_no_other(scene: Scene, search: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    def connect(one: Any, _settings: Any) -> Any:
        if one.conn_id == "dead":
            answers.wait(20)
        return scene.cluster

    monkeypatch.setattr(hook.TrainwrightHook, "connect", connect)
    scene.places |= {records.Place("dead")}
    scene.ended["failed"] = "failed"
    scene.job("failed")
    look_until(search, lambda: not scene.running(), "the job to be suspended")
    answers.set()


class Refusing(DelegatingCluster):
    """A cluster whose requests fail as a test says."""

    default_namespace = "default"

    def __init__(self, cluster: EmbeddedCluster):
        super().__init__(cluster)
        self.patches: list[Exception] = []
        self.is_namespaced = False

    def patch(self, kind: Kind, name: str, patch: Any, namespace: str | None = None, **options: Any) -> Any:
        if self.patches:
            raise self.patches.pop()
        return super().patch(kind, name, patch, namespace, **options)


@pytest.fixture
def refusing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Refusing:
    made = Refusing(scene.cluster)
    monkeypatch.setattr(hook.TrainwrightHook, "connect", lambda _hook, _settings: made)
    return made


def test_account_that_may_list_only_its_namespace_watches_that(scene: Scene, search: Any, refusing: Refusing) -> None:
    refusing.is_namespaced = True
    scene.ended |= {"here": "failed", "elsewhere": "failed"}
    scene.job("here")
    scene.job("elsewhere", namespace="other")
    look_until(search, lambda: scene.running() == {"elsewhere"}, "the job of its namespace to be suspended")
    scene.places.add(records.Place(None, "", "other"))
    look_until(search, lambda: not scene.running(), "that of a namespace that a trigger has named")


def test_connection_that_cannot_be_used_is_said_once(
    scene: Scene, search: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_hook: Any, _settings: Any) -> Any:
        raise Forbidden("https://ann:secret-value@example.com refuses")

    monkeypatch.setattr(left_jobs, "_UNUSABLE", left_jobs.Backoff(0.0, 0.0))
    monkeypatch.setattr(hook.TrainwrightHook, "connect", fail)
    caplog.set_level("INFO")
    look_until(search, lambda: "left_jobs_not_watched" in caplog.text, "the line")
    for _ in range(3):
        search.look()
    (said,) = (record.getMessage() for record in caplog.records if "left_jobs_not_watched" in record.getMessage())
    assert "secret-value" not in said


def test_database_that_cannot_be_read_leaves_the_jobs_to_their_leases(
    scene: Scene, search: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_tasks: Any) -> Any:
        raise AttributeError("TaskInstance has no state")

    scene.job("failed")
    monkeypatch.setattr(left_jobs, "ended_tasks", fail)
    look_until(search, lambda: "left_jobs_not_searched" in caplog.text, "the warning")
    search.look()
    assert caplog.text.count("event=left_jobs_not_searched") == 1
    assert scene.running() == {"failed"}


@contextmanager
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Airflow's tables of tasks, in memory; yields what inserts a row."""
    from airflow.models import Connection, TaskInstance, Trigger
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.utils import session as sessions
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine("sqlite://")
    models = {"ti": TaskInstance, "earlier": TaskInstanceHistory, "run": DagRun, "connection": Connection, "trigger": Trigger}
    TaskInstance.metadata.create_all(engine, tables=[model.__table__ for model in models.values()])

    @contextmanager
    def create_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    def insert(table: str, **values: Any) -> None:
        with engine.begin() as connection:
            connection.execute(models[table].__table__.insert().values(**values))

    monkeypatch.setattr(sessions, "create_session", create_session)
    yield insert
    engine.dispose()


def task(uid: str, task_id: str = "t", number: int = 0, run_id: str = "r", map_index: int = -1) -> Any:
    return records.AwaitingTask(uid, "d", task_id, run_id, map_index, "suspend", str(UUID(int=number)))


def test_tasks_of_this_airflow_that_have_ended_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"dag_id": "d", "pool": "p", "pool_slots": 1, "try_number": 1}
    with database(monkeypatch) as insert:
        for number, (run_id, state) in enumerate((("r", "running"), ("over", "failed"))):
            when = datetime.now(UTC)
            insert("run", id=number, dag_id="d", run_id=run_id, run_type="manual", run_after=when, state=state, log_template_id=1)
        states = {"failed": "failed", "skipped": "skipped", "deferred": "deferred", "cleared": None, "again": "up_for_retry"}
        for number, (name, state) in enumerate(states.items(), 1):
            for run_id, shift in (("r", 0), ("over", 100)):
                insert("ti", **row, id=UUID(int=number + shift), task_id=name, run_id=run_id, map_index=-1, state=state)
        insert("ti", **row, id=UUID(int=50), task_id="retried", run_id="r", map_index=3, state="skipped")
        insert("earlier", **row, task_instance_id=UUID(int=49), task_id="retried", run_id="r", map_index=3)
        insert("ti", **row, id=UUID(int=60), task_id="foreign", run_id="r", map_index=-1, state="failed")
        asked = [
            *(task(f"r-{name}", name, number) for number, name in enumerate(states, 1)),
            *(task(f"over-{name}", name, number + 100, "over") for number, name in enumerate(states, 1)),
            task("retried", "retried", 49, map_index=3),
            task("of-another-airflow", "foreign", 61),
            task("of-no-run", "failed", 1, "gone"),
            records.AwaitingTask("notes-no-id", "d", "failed", "r", -1, "suspend"),
        ]
        found = records.ended_tasks(asked)
    in_running_run = {"r-failed": "failed", "r-skipped": "skipped", "retried": "skipped"}
    in_ended_run = {"over-failed": "failed", "over-skipped": "skipped", "over-cleared": "", "over-again": "up_for_retry"}
    in_ended_run["over-deferred"] = "deferred"
    assert found == {**in_running_run, **in_ended_run}


def test_places_are_those_of_connections_and_of_waiting_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models import Trigger

    monkeypatch.setenv("AIRFLOW_CONN_LAPTOP", '{"conn_type": "trainwright"}')
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN", "{")
    monkeypatch.setenv("AIRFLOW_CONN_STORE", "aws://")
    monkeypatch.setenv("KUBECONFIG", "/a")
    arguments = {"conn_id": "vault", "submission_mode": "jobset", "namespace": "team", "name": "n"}
    with database(monkeypatch) as insert:
        for number, (conn_id, conn_type) in enumerate((("prod", "trainwright"), ("k", "kubernetes"), ("db", "postgres"))):
            insert("connection", id=number, conn_id=conn_id, conn_type=conn_type)
        for number, path in enumerate((records.TRIGGER, "another.Trigger")):
            row = Trigger(path, {**arguments, "namespace": "team" if number == 0 else "no"})
            insert("trigger", id=number, classpath=path, kwargs=row.encrypted_kwargs, created_date=datetime.now(UTC))
        found = records.known_places()
    assert found == {
        *(records.Place(conn_id) for conn_id in ("prod", "k", "laptop")),
        records.Place("vault", "jobset", "team"),
        records.Place(None),
    }


def test_only_a_triggerer_begins_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(plugin, "begin_search", lambda: begun.append(sys.argv[1]))
    for command in ("scheduler", "triggerer", "api-server"):
        monkeypatch.setattr(sys, "argv", ["airflow", command])
        plugin.TrainwrightPlugin.listeners[0].on_starting(component=uuid4())
    assert begun == ["triggerer"]
