"""With a token, no value of any field of the form has the server open a file, or connect to anything but its cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ui.page_client import page_client

from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.request.setting import in_groups, names_of, options_of, paths_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.steps.requests import EvaluateExport, InitializeDataset, PreprocessDataset
from trainwright.ui.call import Page
from trainwright.ui.form.check import settings

GOOD = {"model_uri": "hf://org/m", "dataset_uri": "s3://d/x.jsonl", "export_uri": "s3://m/x", "workspace": "pvc://t?size=5Gi"}
_watched: list[str] | None = None
_seen: list[str] = []


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is None:
        return
    what = f"{event} {arguments[:1]}"
    if event in ("open", "os.listdir", "os.scandir") and any(place in str(arguments[0]) for place in _watched):
        _seen.append(what)
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.exec", "os.posix_spawn"):
        _seen.append(what)


sys.addaudithook(_record)  # for the life of this process: hooks cannot be removed


@contextmanager
def watched(*places: str) -> Iterator[list[str]]:
    """Give the files below these places that are opened, the connections and the programs that are started in the block."""
    global _watched
    _seen.clear()
    _watched = list(places)
    try:
        yield _seen
    finally:
        _watched = None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "of-the-server"
    folder.mkdir()
    spec = {"runtimeRef": {"name": "SECRET"}}
    manifest = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {}, "spec": spec}
    (folder / "job.yaml").write_text(json.dumps(manifest))
    (folder / "train.py").write_text("SECRET")
    return folder


def test_audit_hook_sees_files_and_connections(folder: Path) -> None:
    import socket

    with watched(str(folder)) as seen, socket.socket() as connection:
        (folder / "train.py").read_text()
        assert connection.connect_ex(("127.0.0.1", 1)) != 0
    assert [each.split()[0] for each in seen] == ["open", "socket.connect"]


@pytest.mark.medium
def test_no_value_of_any_field_is_read_here(cluster: EmbeddedCluster, folder: Path) -> None:
    file, repository = f"{folder}/job.yaml", f"git+file://{folder}@HEAD"
    values = [
        file,
        str(folder),
        f"file://{file}",
        f"weights:file://{folder}",
        repository,
        "git+https://127.0.0.1:1/x@main",
        "s3://127.0.0.1/x",
    ]
    sent: list[dict[str, Any]] = [{one.name: value} for one in settings() for value in values]
    for name, setting in options_of(TrainRequest).items():
        given: list[Any] = values if setting.place else [file]
        if setting.place or setting.kind in ("object", "list", "function"):
            given = [*given, [file], {"A": file, "path": file}, [{"name": "v", "hostPath": {"path": str(folder)}}]]
        for value in given:
            training = in_groups(TrainRequest, {name: value, **({"command": ["train.py"]} if name == "code" else {})})
            sent += [{"training": training}]
            sent += [{"training": json.dumps(training)}] if setting.place == "here" else []
    sent += [{"data": {name: file}} for step in (InitializeDataset, PreprocessDataset) for name in names_of(step)]
    sent += [{"evaluation": in_groups(EvaluateExport, {name: file})} for name in paths_of(EvaluateExport)]
    client = page_client(cluster, Page())
    client.post("form/write", {"parameters": GOOD, "as": "yaml", "run": "r", "namespace": "default"})  # imports what it needs
    with watched(str(folder)) as seen:
        for more in sent:
            answered = client.post(
                "form/write", {"parameters": {**GOOD, **more}, "as": "yaml", "run": "r", "namespace": "default"}
            )
            assert answered.status_code < 500, (more, answered.text)
            assert "SECRET" not in answered.text, more
            assert not seen, (more, seen)
    client.app.close()


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"code": "/any/folder", "command": ["a.py"]}, "code: this page reads no files and no repositories; submit it with"),
        ('{"code": "git+https://example.com/x@main"}', "code: this page reads no files"),
        ({"manifest": "/any/job.yaml"}, "manifest: this page reads no files and no repositories; give the object, or its text"),
    ],
)
def test_settings_that_would_be_read_here_are_named(cluster: EmbeddedCluster, training: Any, message: str) -> None:
    client = page_client(cluster, Page())
    answered = client.post("form/check", {"parameters": {**GOOD, "training": training}}).json()
    client.app.close()
    [problem] = answered["problems"]
    assert problem["field"] == "training"
    assert problem["message"].startswith(message)
