"""What makes two requests the same training, whose checkpoints one may take from the other."""

from __future__ import annotations

from typing import Any

import pytest
from factories import catalogue_runtime, train_request

from trainwright.jobs.manifest.training_program import training_digest
from trainwright.jobs.submit.resolve import resolve

OTHER = {"dataset_digest": f"sha256:{'b' * 64}"}
TRL: dict[str, Any] = {"runtime": "trl-sft", "settings": {"learning_rate": 1e-4}, "workspace": "pvc://w"}
PLAIN: dict[str, Any] = {"runtime": "torch-distributed", "command": ["python", "t.py"], "args": ["--lr", "1"], "env": {"A": "1"}}


def digest(**fields: Any) -> str:
    return training_digest(resolve(train_request(**fields), catalogue_runtime(fields["runtime"])))


def patch(container: dict[str, Any]) -> list[dict[str, Any]]:
    pod = {"containers": [{"name": "node", **container}]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return [{"manager": "me/here", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}]


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (TRL, {"settings": {"learning_rate": 2e-4}}),
        (TRL, OTHER),
        (TRL, {"model_uri": "hf://o/m"}),
        (TRL, {"image": "example.com/other:1"}),
        (PLAIN, {"args": ["--lr", "2"]}),
        (PLAIN, {"command": ["python", "u.py"]}),
        (PLAIN, {"env": {"A": "2"}}),
        (PLAIN, {"runtime_patches": patch({"env": [{"name": "LR", "value": "2"}]})}),
        (PLAIN, {"env": {"A": {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "slow"}}}}}),
        (TRL, {"dataset_uri": "hf://o/d@b"}),
    ],
)
def test_digest_changes_with_what_is_trained(base: dict[str, Any], change: dict[str, Any]) -> None:
    assert digest(**base) != digest(**{**base, **change})


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (TRL, {"settings": {"learning_rate": 1e-4, "logging_steps": 7}}),
        (TRL, {"run_timeout_seconds": 60, "start_timeout_seconds": 60, "queue_timeout_seconds": 60}),
        (TRL, {"workspace": "pvc://other", "export_uri": "s3://b/e", "resume": "never", "store_secret": "s"}),
        (TRL, {"model_env": {"HF_TOKEN": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}}}),
        (PLAIN, {"num_nodes": 3, "num_proc_per_node": 2, "resources_per_node": {"cpu": "1"}}),
        (PLAIN, {"logs": "all", "log_bytes": 5, "labels": {"a": "b"}, "annotations": {"c": "d"}}),
        (PLAIN, {"queue_name": "q", "node_selector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]}),
        (PLAIN, {"args": ["--lr", "1", "--report_to", "wandb", "mlflow", "--save-steps=5", "--run_name", "x"]}),
        (PLAIN, {"env": {"A": "1", "https_proxy": "http://p", "TRACEPARENT": "00-1", "AIRFLOW_CTX_TRY_NUMBER": "2"}}),
        (PLAIN, {"env": {"A": "1", "NCCL_DEBUG": "INFO", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}}),
        (PLAIN, {"runtime_patches": patch({"resources": {"limits": {"cpu": "1"}}})}),
    ],
)
def test_digest_does_not_change_with_how_and_where_it_runs(base: dict[str, Any], change: dict[str, Any]) -> None:
    assert digest(**base) == digest(**{**base, **change})


def test_a_manifest_counts_by_its_program_and_not_by_its_labels() -> None:
    def manifest(**trainer: Any) -> dict[str, Any]:
        spec = {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"command": ["true"], **trainer}}
        return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "m"}, "spec": spec}

    def of(**trainer: Any) -> str:
        request = train_request(manifest=manifest(**trainer))
        return training_digest(resolve(request, catalogue_runtime("torch-distributed")))

    assert of() == of(numNodes=2) == of(resourcesPerNode={"limits": {"cpu": "1"}})
    assert len({of(), of(args=["x"]), of(image="example.com/i:1"), of(env=[{"name": "A", "value": "1"}])}) == 4
