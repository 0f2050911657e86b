"""The buttons of a task: they lead to its job as soon as it is submitted, and only to places that the connection or the store has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deferred_tasks import context, operator, the_job
from support.on_first_use import OnFirstUse

from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.embedded.home import Home, Running
from trainwright.jobs.state.run_folder import run_folder

link_urls = OnFirstUse("trainwright.operators.reporting.link_urls")
connections = OnFirstUse("trainwright.operators.values.connections")
sdk = OnFirstUse("airflow.sdk")
sdk_exceptions = OnFirstUse("airflow.sdk.exceptions")
links = OnFirstUse("trainwright.operators.reporting.links")

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


@pytest.mark.medium
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
    found = connections.fill_link_template(TEMPLATES["trainjob_url"], namespace="n/../x", name='a"><b', uid="u&v")
    assert found == "https://k.example.com/n%2F..%2Fx/a%22%3E%3Cb?uid=u%26v"
    assert connections.fill_link_template(TEMPLATES["logs_url"], namespace="n", name="") == ""


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
    assert link_urls.browsable_url(uri) == url
