"""What is set on the task of a training is for its TrainJob; the pod that waits has small resources, which can be set apart."""

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.on_first_use import OnFirstUse

compiler = OnFirstUse("kfp.compiler")
components = OnFirstUse("kfp.components")
dsl = OnFirstUse("kfp.dsl")
kubernetes = OnFirstUse("kfp.kubernetes")
shipped = OnFirstUse("trainwright.components")
training_task = OnFirstUse("trainwright.components.training_task")

pytestmark = pytest.mark.medium


@functools.cache
def trained_pipeline() -> Any:
    @shipped.train_function
    def fit(steps: int) -> int:
        return steps

    @dsl.pipeline(name="trained")
    def trained(cpus: str = "8", steps: int = 3) -> None:
        task = shipped.train(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, command=["true"])
        task.set_cpu_limit(cpus).set_memory_limit("64Gi").set_memory_request("32Gi")
        task.set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(2)
        shipped.set_step_resources(task, memory_limit="2Gi")
        kubernetes.empty_dir_mount(task, "scratch", "/scratch", medium="Memory", size_limit="1Gi")
        kubernetes.add_pod_label(task, "team", "ml")
        kubernetes.add_pod_annotation(task, "a/b", "c")
        fit(steps=steps).set_cpu_request("3")

    return trained


def compiled(pipeline: Any, folder: Path) -> dict[str, Any]:
    compiler.Compiler().compile(pipeline, str(folder / "p.yaml"))
    spec: dict[str, Any] = next(iter(yaml.safe_load_all((folder / "p.yaml").read_text("utf-8"))))
    return spec


def resources_of(spec: dict[str, Any], task: str) -> dict[str, Any]:
    found = spec["deploymentSpec"]["executors"][f"exec-{task}"]["container"].get("resources", {})
    return {name: value for name, value in found.items() if name.startswith("resource")}


def settings_of(spec: dict[str, Any], task: str) -> Any:
    return spec["root"]["dag"]["tasks"][task]["inputs"]["parameters"]["task_settings"]["runtimeValue"]["constant"]


def test_task_settings_apply_to_the_job_not_the_waiting_pod(tmp_path: Path) -> None:
    spec = compiled(trained_pipeline(), tmp_path)
    assert settings_of(spec, "train") == {
        "resources": {
            "limits": {"cpu": "{{$.inputs.parameters['pipelinechannel--cpus']}}", "memory": "64Gi", "nvidia.com/gpu": "2"},
            "requests": {"memory": "32Gi"},
        },
        "labels": {"team": "ml"},
        "annotations": {"a/b": "c"},
        "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
        "volume_mounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }
    assert settings_of(spec, "fit")["resources"] == {"limits": {}, "requests": {"cpu": "3"}}
    own = {
        "resourceCpuRequest": training_task.STEP_RESOURCES["cpu_request"],
        "resourceCpuLimit": training_task.STEP_RESOURCES["cpu_limit"],
        "resourceMemoryRequest": training_task.STEP_RESOURCES["memory_request"],
    }
    assert resources_of(spec, "train") == {**own, "resourceMemoryLimit": "2Gi"}
    assert resources_of(spec, "fit") == {**own, "resourceMemoryLimit": training_task.STEP_RESOURCES["memory_limit"]}
    for name in ("comp-train", "comp-fit"):
        passed = {one["field"]: one.get("applyToTask", False) for one in spec["components"][name]["taskConfigPassthroughs"]}
        assert passed["RESOURCES"], "the pod gets what the backend knows"
        assert not passed["KUBERNETES_NODE_SELECTOR"]


def test_kfp_forgets_what_a_component_from_a_file_is_passed(tmp_path: Path) -> None:
    """Nothing that is set on its task comes to the job, on no server: the page on pipelines says so."""
    compiler.Compiler().compile(shipped.train, str(tmp_path / "train.yaml"))
    loaded = components.load_component_from_file(str(tmp_path / "train.yaml"))
    assert not loaded.component_spec.task_config_passthroughs


def test_the_environment_sets_the_resources_of_the_pods_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dsl.pipeline(name="small")
    def pipeline() -> None:
        shipped.train(run_id="r", command=["true"])

    with monkeypatch.context() as patched:
        patched.setenv(training_task.VARIABLE, '{"memory_limit": "512Mi"}')
        compiler.Compiler().compile(_again(pipeline), str(tmp_path / "p.yaml"))
    spec = next(iter(yaml.safe_load_all((tmp_path / "p.yaml").read_text("utf-8"))))
    assert resources_of(spec, "train")["resourceMemoryLimit"] == "512Mi"
    monkeypatch.setenv(training_task.VARIABLE, '{"gpu": 1}')
    with pytest.raises(ValueError, match=f"{training_task.VARIABLE}: expected an object with some of cpu_request, cpu_limit"):
        _again(pipeline)


def _again(pipeline: Any) -> Any:
    """Trace the pipeline again, with the environment of now."""
    return dsl.pipeline(name="small")(pipeline.pipeline_func)
