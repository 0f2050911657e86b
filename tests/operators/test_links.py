"""The buttons of a task: they lead to its job as soon as it is submitted, and only to places that the connection or the store has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deferred_tasks import context, jobs, operator, the_job
from support.on_first_use import OnFirstUse

from trainwright import operators
from trainwright.cli.page_link import announced, page_address
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.controlplane.home import Home, Running
from trainwright.jobs.state.run_folder import run_folder
from trainwright.operators.provider_info import get_provider_info
from trainwright.operators.reporting.link_urls import browsable_url, page_templates
from trainwright.operators.values.connection_settings import settings_of
from trainwright.operators.values.link_template import fill_link_template

sdk = OnFirstUse("airflow.sdk")
sdk_exceptions = OnFirstUse("airflow.sdk.exceptions")
links = OnFirstUse("trainwright.operators.reporting.links")

SetStatus = Callable[..., Any]
TEMPLATES = {"trainjob_url": "https://k.example.com/{namespace}/{name}?uid={uid}", "logs_url": "http://logs/{name}"}


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def templates(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The extra of the connection `c`."""
    extra: dict[str, Any] = dict(TEMPLATES)
    connection = SimpleNamespace(conn_type="trainwright", extra_dejson=extra)
    monkeypatch.setattr(sdk.BaseHook, "get_connection", lambda *_: connection)
    return extra


def pushing(xcoms: dict[str, Any]) -> dict[str, Any]:
    """A context whose task keeps its XComs."""
    found = context()
    found["ti"].xcom_push = lambda key, value: xcoms.__setitem__(key, value)
    return found


def stored(link: Any, task: sdk.BaseOperator, xcoms: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """What Airflow stores of a link when a worker is done with the task."""
    from airflow.sdk.execution_time.xcom import XCom

    monkeypatch.setattr(XCom, "get_value", lambda *, ti_key, key: xcoms.get(key))
    url: str = link.get_link(task, ti_key=None)
    return url


@pytest.mark.parametrize("exports", [{"export_uri": "s3://bucket/a b"}, {"run": {"training": {"export_uri": "s3://bucket/a b"}}}])
def test_the_links_of_a_deferred_task_are_stored_before_it_waits(
    connected: EmbeddedCluster, templates: dict[str, Any], monkeypatch: pytest.MonkeyPatch, exports: dict[str, Any]
) -> None:
    xcoms: dict[str, Any] = {}
    task = operator(conn_id="c", **exports)
    with pytest.raises(sdk_exceptions.TaskDeferred):
        task.execute(pushing(xcoms))
    metadata, run = the_job(connected)["metadata"], run_folder("d/r").removeprefix("runs/")
    assert xcoms == {
        "trainjob": metadata["name"],
        "namespace": "default",
        links.TrainJobLink().xcom_key: f"https://k.example.com/default/{metadata['name']}?uid={metadata['uid']}",
        links.LogsLink().xcom_key: f"http://logs/{metadata['name']}",
        links.CheckpointLink().xcom_key: f"https://console.aws.amazon.com/s3/buckets/bucket?prefix=a%20b%2F{run}/",
    }
    for link in task.operator_extra_links:
        assert stored(link, task, {}, monkeypatch) == xcoms[link.xcom_key]
        assert stored(link, operator(), xcoms, monkeypatch) == xcoms[link.xcom_key], "of another worker, from the XCom"


@pytest.mark.medium
def test_the_links_of_a_task_that_waits_in_the_worker_are_there_while_it_waits(
    connected: EmbeddedCluster, templates: dict[str, Any], set_status: SetStatus
) -> None:
    xcoms: dict[str, Any] = {}
    found = pushing(xcoms)
    seen = []

    def push(key: str, value: Any) -> None:
        seen.append((key, len(jobs(connected))))
        xcoms[key] = value
        if len(xcoms) == 4:
            set_status(the_job(connected), "Complete")

    found["ti"].xcom_push = push
    operator(conn_id="c", deferrable=False).execute(found)
    assert [key for key, count in seen if count == 1] == [
        "trainjob",
        "namespace",
        links.TrainJobLink().xcom_key,
        links.LogsLink().xcom_key,
    ]


def test_a_sensor_has_the_links_of_the_job_that_it_waits_for(
    connected: EmbeddedCluster, templates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator(wait_for_completion=False).execute(context())
    name = the_job(connected)["metadata"]["name"]
    xcoms: dict[str, Any] = {}
    sensor = operators.TrainJobSensor(task_id="wait", trainjob=name, conn_id="c", deferrable=True, on_cancel="suspend")
    with pytest.raises(sdk_exceptions.TaskDeferred):
        sensor.execute(pushing(xcoms))
    assert xcoms[links.LogsLink().xcom_key] == f"http://logs/{name}"
    assert {link.name for link in sensor.operator_extra_links} == {"TrainJob", "Logs"}


def test_without_templates_or_a_connection_there_are_no_links(
    connected: EmbeddedCluster, templates: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    templates.clear()
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for conn_id in ("c", None):
        xcoms: dict[str, Any] = {}
        task = operator(conn_id=conn_id)
        with pytest.raises(sdk_exceptions.TaskDeferred):
            task.execute(pushing(xcoms))
        assert set(xcoms) == {"trainjob", "namespace"}
        assert [stored(link, task, {}, monkeypatch) for link in task.operator_extra_links] == ["", "", ""]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page of an embedded cluster that seems to run in `tmp_path / "home"`."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    home = Home.chosen()
    home.make()
    home.database.touch()
    lock = home.lock()
    url = "http://127.0.0.1:4/ui/"
    home.announce(Running(1, 2, "https://127.0.0.1:2", "", False, (), "normal", {}, page=url))
    yield url
    os.close(lock)


@pytest.mark.parametrize("named", ["kubeconfig", "environment", "mode"])
def test_links_lead_to_the_page_of_the_embedded_cluster(
    connected: EmbeddedCluster, templates: dict[str, Any], monkeypatch: pytest.MonkeyPatch, page: str, named: str
) -> None:
    templates.clear()
    kubeconfig = str(Home.chosen().kubeconfig)
    if named == "environment":
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
    else:
        templates |= {"kubeconfig": kubeconfig} if named == "kubeconfig" else {"submission_mode": "embedded"}
    xcoms: dict[str, Any] = {}
    with pytest.raises(sdk_exceptions.TaskDeferred):
        operator(conn_id=None if named == "environment" else "c").execute(pushing(xcoms))
    job = f"{page}#/jobs/default/{the_job(connected)['metadata']['name']}"
    assert xcoms[links.TrainJobLink().xcom_key] == job
    assert xcoms[links.LogsLink().xcom_key] == f"{job}/logs"


def test_templates_of_the_connection_come_before_the_page(
    connected: EmbeddedCluster, templates: dict[str, Any], page: str
) -> None:
    templates |= {"kubeconfig": str(Home.chosen().kubeconfig), "trainjob_url": ""}
    xcoms: dict[str, Any] = {}
    with pytest.raises(sdk_exceptions.TaskDeferred):
        operator(conn_id="c").execute(pushing(xcoms))
    name = the_job(connected)["metadata"]["name"]
    assert xcoms[links.TrainJobLink().xcom_key] == f"{page}#/jobs/default/{name}"
    assert xcoms[links.LogsLink().xcom_key] == f"http://logs/{name}"


def test_links_lead_to_the_page_of_trainwright_ui_while_it_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "https://k.example.com:6443"}}
    user, selected = {"name": "u", "user": {"token": "secret"}}, {"name": "x", "context": {"cluster": "c", "user": "u"}}
    contents = {"clusters": [cluster], "users": [user], "contexts": [selected], "current-context": "x"}
    kubeconfig.write_text(json.dumps(contents), "utf-8")
    settings = settings_of("trainwright", {"kubeconfig": str(kubeconfig)}, "c")
    with announced("https://other.example.com", "http://127.0.0.1:5/ui/"):
        assert page_templates(settings) == ("", "")
        with announced("https://k.example.com:6443", "http://127.0.0.1:4/ui/"):
            job = "http://127.0.0.1:4/ui/#/jobs/{namespace}/{name}"
            assert page_templates(settings) == (job, f"{job}/logs")
    assert page_templates(settings) == ("", "")


def test_page_of_a_process_that_is_gone_is_not_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with announced("https://k", "http://127.0.0.1:4/ui/"):
        assert page_address(None, lambda: "https://k") == "http://127.0.0.1:4/ui/"
        (note,) = (tmp_path / "home/page").iterdir()
        note.write_text(f"{ended.pid} http://127.0.0.1:4/ui/", "utf-8")
        assert page_address(None, lambda: "https://k") == ""


def test_a_task_that_fails_before_it_has_a_job_asks_for_no_link(
    connected: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow logs an error for each XCom that it does not find."""
    from airflow.sdk.execution_time.xcom import XCom

    asked: list[str] = []
    monkeypatch.setattr(XCom, "get_value", lambda *, ti_key, key: asked.append(key))
    task = operator(runtime="no-such-runtime")
    with pytest.raises(Exception, match="no-such-runtime"):
        task.execute(context())
    assert [link.get_link(task, ti_key=None) for link in task.operator_extra_links] == ["", "", ""]
    assert asked == []
    assert [link.get_link(operator(), ti_key=None) for link in task.operator_extra_links] == ["", "", ""]
    assert len(asked) == 3, "a task that was resumed does not know what was shown before"


def test_a_link_fails_no_task(connected: EmbeddedCluster, templates: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    found = context()

    def fails(**_: Any) -> None:
        raise RuntimeError("secret")

    found["ti"].xcom_push = fails
    with pytest.raises(sdk_exceptions.TaskDeferred):
        operator(conn_id="c").execute(found)
    assert "no link: it could not be stored" in caplog.text
    assert "secret" not in caplog.text


def test_values_are_escaped() -> None:
    found = fill_link_template(TEMPLATES["trainjob_url"], namespace="n/../x", name='a"><b', uid="u&v")
    assert found == "https://k.example.com/n%2F..%2Fx/a%22%3E%3Cb?uid=u%26v"
    assert fill_link_template(TEMPLATES["logs_url"], namespace="n", name="") == ""


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("s3://bucket", "https://console.aws.amazon.com/s3/buckets/bucket"),
        ("s3://bucket/r/checkpoint-5", "https://console.aws.amazon.com/s3/buckets/bucket?prefix=r%2Fcheckpoint-5/"),
        ("s3://bucket/a&b", "https://console.aws.amazon.com/s3/buckets/bucket?prefix=a%26b/"),
        ("gs://bucket/r/a b", "https://console.cloud.google.com/storage/browser/bucket/r/a%20b"),
        ("https://host/r/file?sig=secret", "https://host/r/file"),
        ("https://u:secret@host/r/file", ""),
        ("az://container/r", ""),
        ("file:///data/r", ""),
        ("pvc://claim/r", ""),
        ("javascript:alert(1)", ""),
        ("", ""),
    ],
)
def test_exports_that_a_browser_can_look_at(uri: str, url: str) -> None:
    assert browsable_url(uri) == url


def test_a_bucket_behind_an_endpoint_of_its_own_is_not_amazons(monkeypatch: pytest.MonkeyPatch) -> None:
    assert browsable_url("s3://bucket/r", {"AWS_ENDPOINT_URL": "https://minio"}) == ""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://minio")
    assert browsable_url("s3://bucket/r") == ""


def test_an_export_has_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    xcoms: dict[str, Any] = {}
    task = operators.ExportCheckpointOperator(task_id="export", export_uri="gs://bucket/e")
    links.show_checkpoint_link(task, pushing(xcoms), "gs://bucket/e/r/checkpoint-5", task.store_conn_id)
    (link,) = task.operator_extra_links
    assert xcoms == {link.xcom_key: "https://console.cloud.google.com/storage/browser/bucket/e/r/checkpoint-5"}
    assert stored(link, task, {}, monkeypatch) == xcoms[link.xcom_key]


def test_the_provider_registers_the_links() -> None:
    from importlib import import_module

    names = get_provider_info()["extra-links"]
    found = {getattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in names}
    assert found == {type(link) for link in operators.TrainJobOperator.operator_extra_links}
    assert len({link.xcom_key for link in operators.TrainJobOperator.operator_extra_links}) == 3
