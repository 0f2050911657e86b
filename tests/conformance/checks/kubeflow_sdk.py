"""What users do with the Kubeflow SDK, unmodified: jobs that run, with runtimes that these checks bring.

Where a hub, an S3 server or the SDK itself has to be reachable from a pod, the caller says where: CHECK_HUB, CHECK_S3_* and
CHECK_SITE. Without them those checks are left out.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import running
from kubeflow.trainer import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    DataCacheInitializer,
    DataType,
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    Initializer,
    KubernetesBackendConfig,
    LoraConfig,
    S3DatasetInitializer,
    TorchTuneConfig,
    TrainerClient,
)
from kubeflow.trainer.options import Annotations, Labels, Name, TrainerCommand
from kubernetes import client, config

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
IMAGE = "python:3.12-slim"
TUNE = "#!/bin/sh\necho tune was asked to: $*\n"
"""Stands in for torchtune: what it is asked for is in its log."""


class Context:
    """A client of the SDK in a namespace of its own, with runtimes there."""

    def __init__(self, kubeconfig: str):
        api = config.new_client_from_config(kubeconfig)
        self.core, self.custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self.namespace = "s-" + "".join(random.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))
        self.core.create_namespace({"metadata": {"name": self.namespace}})
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        self.core.create_namespaced_persistent_volume_claim(self.namespace, {"metadata": {"name": "workspace"}, "spec": claim})
        self.core.create_namespaced_config_map(self.namespace, {"metadata": {"name": "tools"}, "data": {"tune": TUNE}})
        for obj in (plain(), prepared(), cached(), tuned()):
            self.custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, "trainingruntimes", obj)
        self.kubeconfig = kubeconfig
        self.sdk = TrainerClient(self.config())

    def config(self) -> KubernetesBackendConfig:
        return KubernetesBackendConfig(namespace=self.namespace, config_file=self.kubeconfig)

    def close(self) -> None:
        self.core.delete_namespace(self.namespace)

    def trainjob(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, "trainjobs", name)
        return found

    @contextmanager
    def job(self, runtime: str = "plain", **arguments: Any) -> Iterator[str]:
        """A job, until the block ends."""
        name = self.sdk.train(runtime=runtime, **arguments)
        try:
            yield name
        finally:
            self.sdk.delete_job(name)

    def done(self, name: str) -> Any:
        try:
            return self.sdk.wait_for_job_status(name, timeout=90, polling_interval=1)
        except (RuntimeError, TimeoutError) as error:
            steps = [(step.name, step.status) for step in self.sdk.get_job(name).steps]
            raise RuntimeError(f"{error}; {steps}; log of node-0: {list(self.sdk.get_job_logs(name))}") from error


# ---------- runtimes


def runtime(name: str, framework: str, policy: dict[str, Any], *jobs: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": framework}},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": {"replicatedJobs": list(jobs)}}},
    }


def replicated(name: str, step: str, container: dict[str, Any], *, after: tuple[str, ...] = (), **pod: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": name, "image": IMAGE, **container}], "restartPolicy": "Never", **pod}
    job: dict[str, Any] = {
        "name": name,
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }
    if after:
        job["dependsOn"] = [{"name": other, "status": "Complete"} for other in after]
    return job


def plain() -> dict[str, Any]:
    """A Python program on one node."""
    return runtime("plain", "plainml", {}, replicated("node", "trainer", {"command": ["echo", "nothing"]}))


def prepared() -> dict[str, Any]:
    """Upstream's initializers and a program that shares their workspace."""
    volume = {"name": "initializer", "persistentVolumeClaim": {"claimName": "workspace"}}
    mounts = [{"name": "initializer", "mountPath": "/workspace"}]
    hub = [{"name": "HF_ENDPOINT", "value": os.environ["CHECK_HUB"]}] if "CHECK_HUB" in os.environ else []
    jobs = []
    for step in ("dataset-initializer", "model-initializer"):
        image = f"ghcr.io/kubeflow/trainer/{step}"
        container = {"image": image, "env": [{"name": "STORAGE_URI", "value": "hf://o/none"}, *hub], "volumeMounts": mounts}
        jobs.append(replicated(step, step, container, volumes=[volume]))
    node = {"command": ["sh", "-c", "find /workspace -type f | sort"], "volumeMounts": mounts}
    jobs.append(replicated("node", "trainer", node, after=("dataset-initializer", "model-initializer"), volumes=[volume]))
    return runtime("prepared", "plainml", {}, *jobs)


def cached() -> dict[str, Any]:
    """A data cache's initializer that only tells what it was given."""
    told = "echo cache of $CLUSTER_SIZE from $METADATA_LOC at $STORAGE_URI"
    initializer = {"command": ["sh", "-c", told], "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    return runtime(
        "cached",
        "plainml",
        {},
        replicated("dataset-initializer", "dataset-initializer", initializer, volumes=[{"name": "initializer", "emptyDir": {}}]),
        replicated("node", "trainer", {"command": ["echo", "trained"]}, after=("dataset-initializer",)),
    )


def tuned() -> dict[str, Any]:
    """torchtune's runtime by its name, which chooses the configuration; its program is ours."""
    volume = {"name": "tools", "configMap": {"name": "tools", "defaultMode": 0o755}}
    node = {
        "command": ["tune", "run", "full_finetune_single_device", "output_dir=/workspace/output"],
        "env": [{"name": "PATH", "value": "/opt/tools:/usr/local/bin:/usr/bin:/bin"}],
        "volumeMounts": [{"name": "tools", "mountPath": "/opt/tools"}],
    }
    return runtime("torchtune-llama3.2-1b", "torchtune", {"torch": {}}, replicated("node", "trainer", node, volumes=[volume]))


# ---------- programs: their source travels in the TrainJob


def count(steps: int, pause: float = 0.0) -> None:
    import time

    for step in range(steps):
        print("step", step, flush=True)
        time.sleep(pause)


def rank() -> None:
    import os

    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)


def fail() -> None:
    raise SystemExit(3)


def report() -> None:
    from kubeflow.trainer.backends.kubernetes.utils import update_trainjob_status

    sent = update_trainjob_status(progress_percent=42, estimated_remaining_seconds=7, metrics={"loss": 0.5})
    print("sent", sent, flush=True)


def transformers_report() -> None:
    from transformers import TrainerControl, TrainerState
    from transformers.integrations.integration_utils import KubeflowCallback

    callback, state = KubeflowCallback(), TrainerState(max_steps=10)
    callback.on_train_begin(None, state, TrainerControl())
    callback.on_log(None, state, TrainerControl(), logs={"loss": 0.25})
    state.global_step = 10
    callback.on_train_end(None, state, TrainerControl())


# ---------- runtimes as the SDK sees them


def check_client_finds_the_control_plane(at: Context) -> None:
    """The SDK asks for the version of the Trainer, and warns where nobody tells."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("kubeflow").addHandler(handler)
    TrainerClient(at.config())
    logging.getLogger("kubeflow").removeHandler(handler)
    assert not said, said


def check_list_runtimes(at: Context) -> None:
    found = {entry.name: entry for entry in at.sdk.list_runtimes()}
    assert {"torch-distributed", "plain", "prepared", "torchtune-llama3.2-1b"} <= found.keys()
    assert found["torch-distributed"].kind.value == "ClusterTrainingRuntime"
    assert found["torchtune-llama3.2-1b"].kind.value == "TrainingRuntime", "the namespace's own goes first"


def check_get_runtime(at: Context) -> None:
    found = at.sdk.get_runtime("torch-distributed")
    assert (found.trainer.framework, found.trainer.num_nodes, found.trainer.command[0]) == ("torch", 1, "bash")
    assert at.sdk.get_runtime("plain").trainer.image == IMAGE
    try:
        at.sdk.get_runtime("none")
    except RuntimeError:
        return
    raise AssertionError("a runtime that does not exist was found")


def check_get_runtime_packages(at: Context) -> None:
    """Runs a job of its own, prints what it printed, and takes it away."""
    written: list[str] = []
    stdout, sys.stdout = sys.stdout, type("Kept", (), {"write": lambda _, text: written.append(text), "flush": lambda _: None})()
    try:
        at.sdk.get_runtime_packages(at.sdk.get_runtime("plain"))
    finally:
        sys.stdout = stdout
    assert "Python: 3." in "".join(written), written
    assert at.sdk.list_jobs() == []


# ---------- train


def check_train_a_function(at: Context) -> None:
    trainer = CustomTrainer(func=count, func_args={"steps": 3})
    with at.job(trainer=trainer, options=[Labels({"team": "a"}), Annotations({"why": "check"})]) as name:
        done = at.done(name)
        assert (done.status, done.num_nodes, [step.name for step in done.steps]) == ("Complete", 1, ["node-0"])
        assert done.steps[0].status == "Succeeded"
        assert list(at.sdk.get_job_logs(name)) == ["step 0", "step 1", "step 2"]
        metadata = at.trainjob(name)["metadata"]
        assert (metadata["labels"], metadata["annotations"]["why"]) == ({"team": "a"}, "check")


def check_train_a_function_on_two_nodes_with_torchrun(at: Context) -> None:
    trainer = CustomTrainer(func=rank, num_nodes=2, env={"GREETING": "hello"})
    with at.job("torch-distributed", trainer=trainer) as name:
        done = at.done(name)
        assert [step.name for step in done.steps] == ["node-0", "node-1"]
        lines = [line for step in ("node-0", "node-1") for line in at.sdk.get_job_logs(name, step=step) if "rank" in line]
        assert sorted(lines) == ["rank 0 of 2", "rank 1 of 2"], lines
        assert at.trainjob(name)["spec"]["trainer"]["env"] == [{"name": "GREETING", "value": "hello"}]


def check_train_a_container(at: Context) -> None:
    """The runtime's own command, with another image and variables; and one that is given."""
    with at.job(trainer=CustomTrainerContainer(image="busybox:1.36", env={"A": "b"})) as name:
        at.done(name)
        assert list(at.sdk.get_job_logs(name)) == ["nothing"]
    options = [TrainerCommand(["sh", "-c", "echo $A"])]
    with at.job(trainer=CustomTrainerContainer(image="busybox:1.36", env={"A": "b"}), options=options) as name:
        at.done(name)
        assert list(at.sdk.get_job_logs(name)) == ["b"]


def check_train_builtin_torchtune(at: Context) -> None:
    """The settings become what torchtune is asked for."""
    settings = TorchTuneConfig(dtype=DataType.BF16, batch_size=4, epochs=2, peft_config=LoraConfig(lora_rank=8))
    with at.job("torchtune-llama3.2-1b", trainer=BuiltinTrainer(config=settings)) as name:
        at.done(name)
        (line,) = at.sdk.get_job_logs(name)
        for wanted in (
            "run",
            "lora_finetune_single_device",
            "--config llama3_2/1B_lora_single_device",
            "dtype=bf16",
            "batch_size=4",
        ):
            assert wanted in line, line
        assert "model.lora_rank=8" in line, line


def check_train_with_a_name_that_is_taken(at: Context) -> None:
    options = [Name("mine")]
    with at.job(trainer=CustomTrainer(func=count, func_args={"steps": 1}), options=options) as name:
        assert name == "mine"
        try:
            at.sdk.train(runtime="plain", trainer=CustomTrainer(func=count, func_args={"steps": 1}), options=options)
        except RuntimeError as error:
            assert "mine" in str(error)
            return
        raise AssertionError("the name was given twice")


def check_train_refused(at: Context) -> None:
    try:
        at.sdk.train(runtime="none", trainer=CustomTrainer(func=count, func_args={"steps": 1}))
    except RuntimeError:
        return
    raise AssertionError("a job without a runtime was taken")


# ---------- what becomes of a job


def check_running_then_complete_with_callbacks(at: Context) -> None:
    seen: list[str] = []
    with at.job(trainer=CustomTrainer(func=count, func_args={"steps": 3, "pause": 1.0})) as name:
        running_job = at.sdk.wait_for_job_status(name, {"Running"}, timeout=60, polling_interval=1)
        assert (running_job.status, running_job.steps[0].status) == ("Running", "Running")
        at.sdk.wait_for_job_status(name, timeout=60, polling_interval=1, callbacks=[lambda job: seen.append(job.status)])
        assert seen[-1] == "Complete"


def check_a_failure_is_told(at: Context) -> None:
    with at.job(trainer=CustomTrainer(func=fail)) as name:
        try:
            at.done(name)
        except RuntimeError as error:
            assert "Failed" in str(error)
        else:
            raise AssertionError("the job did not fail")
        assert at.sdk.wait_for_job_status(name, {"Failed"}, timeout=10, polling_interval=1).status == "Failed"


def check_logs_followed(at: Context) -> None:
    """Lines come while the job runs, and the stream ends with it."""
    with at.job(trainer=CustomTrainer(func=count, func_args={"steps": 3, "pause": 0.7})) as name:
        at.sdk.wait_for_job_status(name, {"Running", "Complete"}, timeout=60, polling_interval=1)
        arrived = [(time.monotonic(), line) for line in at.sdk.get_job_logs(name, follow=True)]
        assert [line for _, line in arrived] == ["step 0", "step 1", "step 2"]
        assert arrived[-1][0] - arrived[0][0] < 60


def check_events(at: Context) -> None:
    with at.job(trainer=CustomTrainer(func=count, func_args={"steps": 1})) as name:
        at.done(name)
        events = at.sdk.get_job_events(name)
        assert events, "no events"
        assert {event.involved_object_kind for event in events} <= {"TrainJob", "JobSet", "Job", "Pod"}
        assert all(event.reason and event.event_time for event in events)


def check_list_and_delete_jobs(at: Context) -> None:
    trainer = CustomTrainer(func=count, func_args={"steps": 1})
    with at.job(trainer=trainer) as first, at.job(trainer=trainer) as second:
        at.done(first), at.done(second)
        plain_runtime = at.sdk.get_runtime("plain")
        assert {job.name for job in at.sdk.list_jobs(runtime=plain_runtime)} == {first, second}
        assert at.sdk.list_jobs(runtime=at.sdk.get_runtime("prepared")) == []
    eventually_gone = time.monotonic() + 30
    while at.sdk.list_jobs() or at.core.list_namespaced_pod(at.namespace).items:
        assert time.monotonic() < eventually_gone, "jobs or pods are left"
        time.sleep(0.1)
    try:
        at.sdk.delete_job("none")
    except RuntimeError:
        return
    raise AssertionError("a job that does not exist was deleted")


# ---------- initializers


def check_initializers_huggingface(at: Context) -> None:
    if "CHECK_HUB" not in os.environ:
        raise running.CannotBeTold("no hub that pods can reach was named")
    initializer = Initializer(
        dataset=HuggingFaceDatasetInitializer(storage_uri="hf://o/data"),
        model=HuggingFaceModelInitializer(storage_uri="hf://o/model", access_token="a-token"),
    )
    with at.job("prepared", initializer=initializer, trainer=CustomTrainerContainer(image=IMAGE)) as name:
        steps = at.done(name).steps
        assert {step.name for step in steps} == {"dataset-initializer", "model-initializer", "node-0"}
        files = " ".join(at.sdk.get_job_logs(name))
        for wanted in ("dataset/rows.jsonl", "model/config.json", "model/model.safetensors"):
            assert wanted in files, files
        assert list(at.sdk.get_job_logs(name, step="dataset-initializer"))


def check_initializers_s3(at: Context) -> None:
    if "CHECK_S3_URI" not in os.environ:
        raise running.CannotBeTold("no S3 server that pods can reach was named")
    dataset = S3DatasetInitializer(
        storage_uri=os.environ["CHECK_S3_URI"],
        endpoint=os.environ["CHECK_S3_ENDPOINT"],
        access_key_id=os.environ["CHECK_S3_KEY"],
        secret_access_key=os.environ["CHECK_S3_SECRET"],
        region="us-east-1",
    )
    # The runtime's own source for the model is replaced as well: it is nowhere.
    model = HuggingFaceModelInitializer(storage_uri="hf://o/model")
    with at.job("prepared", initializer=Initializer(dataset, model), trainer=CustomTrainerContainer(image=IMAGE)) as name:
        at.done(name)
        files = " ".join(at.sdk.get_job_logs(name))
        assert "dataset/rows.jsonl" in files, (files, list(at.sdk.get_job_logs(name, step="dataset-initializer")))


def check_initializers_data_cache(at: Context) -> None:
    """What its initializer is given, and that the training waits for it; the cache itself is upstream's image."""
    cache = DataCacheInitializer(storage_uri="cache://schema/table", metadata_loc="s3://b/metadata.json", num_data_nodes=2)
    with at.job("cached", initializer=Initializer(dataset=cache), trainer=CustomTrainerContainer(image=IMAGE)) as name:
        done = at.done(name)
        assert [step.name for step in done.steps if step.name != "node-0"] == ["dataset-initializer"]
        told = list(at.sdk.get_job_logs(name, step="dataset-initializer"))
        assert told == ["cache of 3 from s3://b/metadata.json at cache://schema/table"], told
        given = at.trainjob(name)["spec"]["initializer"]["dataset"]
        assert given["storageUri"] == "cache://schema/table"
        assert {"name": "CLUSTER_SIZE", "value": "3"} in given["env"]


# ---------- progress from inside


def progress(at: Context, func: Callable[[], None], **trainer: Any) -> tuple[dict[str, Any], list[str]]:
    """What a program's report left in the status, and its log."""
    if "CHECK_SITE" not in os.environ:
        raise running.CannotBeTold("pods have no kubeflow or transformers on this cluster")
    with at.job(trainer=CustomTrainer(func=func, **trainer)) as name:
        at.done(name)
        lines = list(at.sdk.get_job_logs(name))
        return at.trainjob(name)["status"].get("trainerStatus") or {}, lines


def check_progress_by_the_sdk(at: Context) -> None:
    status, lines = progress(at, report, env={"PYTHONPATH": os.environ.get("CHECK_SITE", "")})
    assert lines == ["sent True"], lines
    assert (status["progressPercentage"], status["estimatedRemainingSeconds"]) == (42, 7)
    assert status["metrics"] == [{"name": "loss", "value": "0.5"}]


def check_progress_by_transformers(at: Context) -> None:
    status, lines = progress(at, transformers_report)
    assert status.get("progressPercentage") == 100, (status, lines)
    assert {"name": "loss", "value": "0.25"} in status["metrics"]


if __name__ == "__main__":
    running.main(running.only_here(), Context)
