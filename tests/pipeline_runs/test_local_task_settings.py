"""Settings of tasks in a run on this machine: passed on to trainings, or named in a warning."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.local_task_settings import with_task_settings

HUB = {
    "keyToEnv": [{"envVar": "HF_TOKEN", "secretKey": "token"}],
    "secretName": "hub",
    "secretNameParameter": {"runtimeValue": {"constant": "hub"}},
}


def pipeline_of(
    settings: dict[str, Any],
    container: dict[str, Any] | None = None,
    *,
    training: bool = True,
    is_loaded: bool = False,
    inputs: dict[str, Any] | None = None,
) -> CompiledPipeline:
    """A pipeline with one task, in a loop: its container and its settings of the platform."""
    parameters = {"task_config": {"isOptional": True, "parameterType": "TASK_CONFIG"}} if training else {}
    component: dict[str, Any] = {"executorLabel": "exec-fit", "inputDefinitions": {"parameters": parameters}}
    if training and not is_loaded:
        component["taskConfigPassthroughs"] = [{"field": "ENV"}]
    loop = {"dag": {"tasks": {"fit": {"componentRef": {"name": "comp-fit"}, "taskInfo": {"name": "fit"}}}}}
    spec = {
        "pipelineInfo": {"name": "p"},
        "root": {
            "dag": {"tasks": {"loop": {"componentRef": {"name": "comp-loop"}}}},
            "inputDefinitions": {"parameters": inputs or {}},
        },
        "components": {"comp-fit": component, "comp-loop": loop},
        "deploymentSpec": {"executors": {"exec-fit": {"container": container or {}}}},
        "schemaVersion": "2.1.0",
    }
    return CompiledPipeline((spec, {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {"exec-fit": settings}}}}}))


def task_config_of(pipeline: CompiledPipeline, **values: Any) -> tuple[dict[str, Any], list[str]]:
    local, warnings = with_task_settings(pipeline, values)
    task = local.documents[0]["components"]["comp-loop"]["dag"]["tasks"]["fit"]
    config: dict[str, Any] = task.get("inputs", {}).get("parameters", {}).get("task_config", {})
    return config.get("runtimeValue", {}).get("constant", {}), warnings


def test_settings_of_a_training_task_become_its_task_config() -> None:
    container = {
        "env": [{"name": "TASKVAR", "value": "2"}],
        "resources": {
            "accelerator": {"resourceCount": "1", "resourceType": "nvidia.com/gpu"},
            "cpuLimit": 1.0,
            "resourceCpuLimit": "1",
            "resourceMemoryRequest": "2Gi",
        },
    }
    settings = {
        "secretAsEnv": [{**HUB, "optional": True}],
        "configMapAsEnv": [{"configMapName": "cm", "keyToEnv": [{"envVar": "X", "configMapKey": "x"}]}],
        "fieldPathAsEnv": [{"name": "NODE", "fieldPath": "spec.nodeName"}],
        "nodeSelector": {"labels": {"zone": "a"}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "secretAsVolume": [{"mountPath": "/s", "secretName": "hub", "optional": False}],
        "pvcMount": [{"constant": "data", "mountPath": "/data", "subPath": "a"}],
    }
    config, warnings = task_config_of(pipeline_of(settings, container))
    assert config == {
        "env": [
            {"name": "TASKVAR", "value": "2"},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}}},
            {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "x"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}, "requests": {"memory": "2Gi"}},
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [
            {"name": "pvc-data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "secret-hub", "secret": {"secretName": "hub", "optional": False}},
        ],
        "volumeMounts": [
            {"name": "pvc-data", "mountPath": "/data", "subPath": "a"},
            {"name": "secret-hub", "mountPath": "/s"},
        ],
    }
    assert warnings == ["fit: HF_TOKEN of the Secret hub: set in the training, but not in the step on this machine"]


@pytest.mark.parametrize(
    ("settings", "container", "words"),
    [
        (
            {"nodeAffinity": [{}], "imagePullPolicy": "Always"},
            {},
            "fit: add_node_affinity has no effect in a run on this machine",
        ),
        (
            {"secretAsEnv": [{"keyToEnv": HUB["keyToEnv"], "secretNameParameter": {"taskOutputParameter": {}}}]},
            {},
            "fit: HF_TOKEN: Secret is known at run time only",
        ),
    ],
)
def test_setting_that_cannot_be_honoured_is_named(settings: dict[str, Any], container: dict[str, Any], words: str) -> None:
    config, warnings = task_config_of(pipeline_of(settings, container))
    assert (config, len(warnings)) == ({}, 1)
    assert warnings[0].startswith(words)


def test_settings_dropped_by_the_backend_are_warnings() -> None:
    settings = {"emptyDirMounts": [{"volumeName": "shm", "mountPath": "/dev/shm"}], "podMetadata": {"labels": {"team": "ml"}}}
    container = {"resources": {"resourceCpuLimit": "1"}}
    pipeline = pipeline_of(settings, container)
    config, warnings = task_config_of(pipeline)
    assert config == {"resources": {"limits": {"cpu": "1"}}}
    assert sorted(warnings) == [
        f"fit: {name} is not passed on to the component by Kubeflow Pipelines"
        for name in ("add_pod_label, add_pod_annotation", "empty_dir_mount")
    ]
    task = pipeline.documents[0]["components"]["comp-loop"]["dag"]["tasks"]["fit"]
    task["inputs"] = {"parameters": {"task_settings": {"runtimeValue": {"constant": {"resources": {}}}}}}
    assert task_config_of(pipeline) == ({}, []), "the resources are those of the step"


def test_a_component_from_a_file_gets_nothing_that_is_set_on_its_task_here_either() -> None:
    for given in ({"emptyDirMounts": [{}]}, {}), ({}, {"resources": {"resourceCpuLimit": "1"}}), ({}, {"env": [{"name": "A"}]}):
        config, (warning,) = task_config_of(pipeline_of(*given, is_loaded=True))
        assert config == {}
        assert warning.startswith("fit: what is set on the task does not reach its TrainJob, here and on a server")
    assert task_config_of(pipeline_of({"imagePullPolicy": "Always"}, is_loaded=True)) == ({}, [])


def test_name_of_a_secret_may_be_a_parameter_of_the_run() -> None:
    secret = {"keyToEnv": HUB["keyToEnv"], "secretNameParameter": {"componentInputParameter": "pipelinechannel--secret"}}
    pipeline = pipeline_of({"secretAsEnv": [secret]}, inputs={"secret": {"parameterType": "STRING", "defaultValue": ""}})
    assert task_config_of(pipeline) == ({}, []), "no Secret"
    config, _ = task_config_of(pipeline, secret="mine")
    assert config["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "mine"


def test_settings_of_other_steps_are_named() -> None:
    settings = {"secretAsEnv": [HUB], "activeDeadlineSeconds": 5, "pvcMount": [{"constant": "c", "mountPath": "/data"}]}
    container = {"env": [{"name": "A", "value": "1"}], "resources": {"cpuLimit": 1.0}}
    config, warnings = task_config_of(pipeline_of(settings, container, training=False))
    assert config == {}
    assert warnings == [
        "fit: HF_TOKEN of the Secret hub: not set in a run on this machine; set it in this environment",
        "fit: mount_pvc: nothing is mounted at /data in a run on this machine",
        "fit: requests and limits of resources have no effect in a run on this machine",
        "fit: set_timeout has no effect in a run on this machine",
    ]
