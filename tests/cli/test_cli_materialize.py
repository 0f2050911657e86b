"""`trainwright materialize`: what it reads, what it prints, and one line for each problem."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.runtimes import bundled_runtime

Run = Callable[..., Any]


def kinds(output: str) -> list[str]:
    return [f"{item['kind']}/{item['metadata']['name']}" for item in yaml.safe_load(output)["items"]]


def test_several_files_several_documents_and_stdin(run: Run, write: Any, trainjob: Any) -> None:
    one, two = write(trainjob("one"), trainjob("two"), name="a.yaml"), write(trainjob("three"), name="b.yaml")
    result = run("materialize", "-f", one, "-f", two, "-f", "-", stdin=yaml.safe_dump(trainjob("four")))
    assert result.exit_code == 0
    assert kinds(result.stdout) == ["JobSet/one", "JobSet/two", "JobSet/three", "JobSet/four"]


def test_a_list_and_json_in_and_out(run: Run, trainjob: Any) -> None:
    documents = {"apiVersion": "v1", "kind": "List", "items": [trainjob("one"), trainjob("two")]}
    result = run("materialize", "-f", "-", "-o", "json", stdin=json.dumps(documents))
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert (content["kind"], content["apiVersion"]) == ("List", "v1")
    assert [item["metadata"]["name"] for item in content["items"]] == ["one", "two"]
    again = run("materialize", "-f", "-", stdin=json.dumps(documents))
    assert yaml.safe_load(again.stdout) == content


def test_runtimes_among_the_documents_come_before_the_bundled_ones(run: Run, write: Any, trainjob: Any) -> None:
    runtime = bundled_runtime("torch-distributed")
    assert runtime is not None
    runtime["spec"]["mlPolicy"]["numNodes"] = 7
    result = run("materialize", "-f", write(runtime, trainjob()), "-o", "json")
    (jobset,) = json.loads(result.stdout)["items"]
    assert jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 7
    elsewhere = {**runtime, "kind": "TrainingRuntime", "metadata": {"name": "mine", "namespace": "other"}}
    job = trainjob(runtimeRef={"kind": "TrainingRuntime", "name": "mine"})
    result = run("materialize", "-f", write(elsewhere, job))
    assert result.exit_code == 2
    assert "there is no TrainingRuntime 'mine'" in result.stderr


def test_every_problem_is_one_line_that_begins_with_its_field(run: Run, write: Any, trainjob: Any) -> None:
    job = trainjob(trainer={"numNodes": "many", "env": [{"value": "a"}]})
    result = run("materialize", "-f", write(job))
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("spec.") and ": " in line for line in lines), lines
    assert {line.split(":")[0] for line in lines} >= {"spec.trainer.numNodes", "spec.trainer.env[0].name"}


def test_an_unknown_runtime_names_the_nearest(run: Run, write: Any, trainjob: Any) -> None:
    result = run("materialize", "-f", write(trainjob(runtimeRef={"name": "torch-distribted"})))
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "did you mean 'torch-distributed'?" in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: 1\nb: [1\n", "manifest:3:1: not YAML"),
        (b"a: b: c\n", "manifest:1:5: not YAML"),
        (b"kind: \xff\xfe\n", "manifest: not UTF-8 text (byte 6)"),
        (b"- 1\n", "manifest: document 1 is a list, not an object"),
        (b"", "manifest: no objects"),
        (
            b"kind: TrainJob\nmetadata: {name: a}\nspec: {trainer: {numNodes: 99999999999999999999999}}\n",
            "that JSON does not support",
        ),
        (b"kind: ConfigMap\nmetadata: {name: a}\ndata: {a: !!binary aGk=}\n", "that JSON does not support"),
        (b"kind: List\nitems: [3]\n", "items: must be a list of objects"),
        (b"kind: TrainJob\nmetadata:\n", "metadata: must be an object"),
        (b"kind: ConfigMap\nmetadata: {name: a}\n", "no TrainJob among the documents"),
    ],
)
def test_unreadable_manifests_are_one_line_and_exit_code_2(run: Run, tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "manifest").write_bytes(content)
    for command in ("materialize", "submit"):
        result = run(command, "-f", str(tmp_path / "manifest"))
        assert result.exit_code == 2, result.output
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1


def test_a_missing_file_is_named(run: Run, tmp_path: Path) -> None:
    result = run("materialize", "-f", str(tmp_path / "none.yaml"))
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path / 'none.yaml'}: No such file or directory\n")
    assert "Is a directory" in run("materialize", "-f", str(tmp_path)).stderr


def test_bundled_runtimes_are_listed_and_shown_in_full(run: Run) -> None:
    table = run("runtimes", "list")
    assert table.exit_code == 0
    assert "…" not in table.stdout
    row = next(line for line in table.stdout.splitlines() if line.startswith("trl-sft "))
    assert row.split(maxsplit=2)[1:] == ["trl", "dataset-initializer, model-initializer, node"]
    listed = json.loads(run("runtimes", "list", "-o", "json").stdout)
    assert "trl-sft" in [item["metadata"]["name"] for item in listed["items"]]
    assert yaml.safe_load(run("runtimes", "show", "trl-sft").stdout) == bundled_runtime("trl-sft")
    assert json.loads(run("runtimes", "show", "trl-sft", "-o", "json").stdout) == bundled_runtime("trl-sft")
    unknown = run("runtimes", "show", "trl-sf")
    assert unknown.exit_code == 2
    assert "did you mean 'trl-sft'?" in unknown.stderr
    assert len(unknown.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["materialize", "validate"])
def test_manifests_of_earlier_versions_are_refused_with_what_mends_them(
    run: Run, write: Any, trainjob: Any, command: str
) -> None:
    early = trainjob("early")
    early["spec"]["labels"] = {"team": "x"}
    old = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "old"}, "spec": {}}
    for document, kind in ((early, "TrainJob"), (old, "PyTorchJob")):
        refused = run(command, "-f", write(document))
        assert refused.exit_code == 2
        assert f"{kind} ({document['apiVersion']}) is of an earlier version: `trainwright migrate`" in refused.stderr
    mended = run("migrate", "-f", write(early))
    assert mended.exit_code == 0
    assert "early: spec.labels: became a runtimePatch" in mended.stderr
    assert run(command, "-f", "-", stdin=mended.stdout).exit_code == 0


def test_migrate_prints_json_for_machines(run: Run, write: Any) -> None:
    pod = {"spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob", "metadata": {"name": "j"}}
    workers = {"jaxReplicaSpecs": {"worker": {"template": pod, "restartPolicy": "OnFailure"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    done = run("migrate", "-o", "json", "-f", write({**job, "spec": workers}, claim))
    printed = json.loads(done.stdout)
    assert [obj["kind"] for obj in printed["objects"]] == ["TrainJob", "PersistentVolumeClaim"]
    assert printed["notes"] == [{"path": "kind", "text": "PersistentVolumeClaim data is passed through unchanged"}]
    ports = [{"containerPort": 1}, {"containerPort": 1, "name": "again"}]
    pod["spec"]["containers"][0]["ports"] = ports
    refused = run("migrate", "-f", write({**job, "spec": workers}))
    assert refused.exit_code == 2
    assert refused.stderr.startswith("spec.jaxReplicaSpecs.worker.template.spec.containers[0].ports[1]: Duplicate value")
    refused = run("migrate", "-f", write({**job, "spec": {}}))
    assert (refused.exit_code, refused.stderr) == (2, "spec.jaxReplicaSpecs: Required value\n")
