"""Tests the texts of the form: YAML is admitted, the program runs the pipeline, the DAG loads, all with the values."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml
from ui.page_client import page_client

from trainwright.api.errors import Invalid
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.ui.form.check import checked
from trainwright.ui.form.endpoints import code_of

HOSTILE = "'\"\\{}{{ dag }}$(id)`\n</script>ü"
VALUES: dict[str, Any] = {
    "model_uri": "hf://org/model",
    "dataset_uri": "s3://data/rows.jsonl",
    "export_uri": "s3://models/x",
    "workspace": "pvc://training?size=5Gi",
    "epochs": 2,
    "num_nodes": 2,
    "training": {"settings": {"save_steps": 7}},
    "data": {"columns": {"prompt": HOSTILE}},
    "store_secret": "store",
}


def written(form: str) -> str:
    return code_of(checked(VALUES, looks_at_files=False), form)


def values_in(program: str, name: str) -> dict[str, Any]:
    for node in ast.parse(program).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            found: dict[str, Any] = ast.literal_eval(node.value)
            return found
    raise AssertionError(f"no {name} in {program}")


@pytest.mark.medium
def test_pipeline_code_has_the_values_and_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kfp = pytest.importorskip("kfp")
    arguments = values_in(written("kfp"), "ARGUMENTS")
    assert arguments["data"] == VALUES["data"]
    assert arguments["epochs"] == 2
    assert (arguments["store_secret"], arguments["hub_secret"]) == ("store", "")
    asked: list[Any] = []

    class Client:
        """Takes the run that the program asks for."""

        def __init__(self, host: str):
            asked.append(host)

        def create_run_from_pipeline_func(self, function: Any, *, arguments: dict[str, Any]) -> Any:
            kfp.compiler.Compiler().compile(function, str(tmp_path / "p.yaml"), pipeline_parameters=arguments)
            asked.append(arguments)
            return type("Run", (), {"run_id": "r"})

    monkeypatch.setattr(kfp, "Client", Client)
    monkeypatch.setenv("KFP_HOST", "https://kfp.example.com")
    exec(compile(written("kfp"), "program", "exec"), {"__name__": "__main__"})
    assert asked == ["https://kfp.example.com", arguments]


@pytest.mark.medium
def test_dag_loads_with_the_values_in_its_form(tmp_path: Path) -> None:
    pytest.importorskip("airflow.sdk", reason="needs the extra `airflow`")
    path = tmp_path / "finetune_airflow.py"
    path.write_text(written("airflow"), "utf-8")
    spec = importlib.util.spec_from_file_location("finetune_airflow", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = module.dag.params.dump()
    assert given["data"] == VALUES["data"]
    assert given["epochs"] == 2
    assert given["training"] == {**VALUES["training"], "secrets": {"store_secret": "store"}}
    assert given["learning_rate"] is None, "the default of the trainer"
    assert {"train", "export-checkpoint", "evaluate"} <= set(module.dag.task_ids)


@pytest.mark.medium
def test_manifests_are_admitted_by_the_cluster(cluster: EmbeddedCluster) -> None:
    client = page_client(cluster)
    answered = client.post("form/write", {"parameters": VALUES, "as": "yaml", "run": "r-1", "namespace": "team"})
    client.app.close()
    assert answered.json()["problems"] == []
    objects = list(yaml.safe_load_all(answered.json()["text"]))
    assert [each["kind"] for each in objects] == ["PersistentVolumeClaim", "TrainJob"]
    assert {each["metadata"]["namespace"] for each in objects} == {"team"}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    for each in objects:
        cluster.create(each, field_validation="Strict")
    assert objects[1]["spec"]["initializer"]["dataset"]["storageUri"] == VALUES["dataset_uri"]
    with pytest.raises(Invalid):
        cluster.create({**objects[1], "spec": {**objects[1]["spec"], "wrong": 1}}, field_validation="Strict")


def test_problems_are_returned_instead_of_text(cluster: EmbeddedCluster) -> None:
    client = page_client(cluster)
    answered = client.post("form/write", {"parameters": {}, "as": "kfp", "run": "r-1"}).json()
    refused = client.post("form/write", {"parameters": {"x": 1}, "as": "kfp", "run": "r-1"})
    client.app.close()
    assert answered["text"] == ""
    assert {each["field"] for each in answered["problems"]} == {"model_uri", "dataset_uri", "export_uri", "workspace"}
    assert refused.status_code == 400
