"""The wish where to go on from: checked, put into the pods of a runtime that can honour it, and no part of a job without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from factories import program_request, train_request
from support.refusing_cluster import refusing

from trainwright.api import names
from trainwright.api.errors import Invalid
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import name_of, named
from trainwright.api.phase import superseded
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, TrainRequest, submit_or_adopt, trainjob_manifest
from trainwright.jobs.manifest.resume_patch import PATCH_MANAGER
from trainwright.jobs.submit.resolve import resolve
from trainwright.materialize import materialize
from trainwright.runtimes import bundled_runtime

STEP = Identity("kfp", "run", "train")


def sft(**fields: Any) -> TrainRequest:
    return train_request(
        **{"runtime": "trl-sft", "workspace": "pvc://w", "dataset_uri": "hf://a/b", "model_uri": "hf://a/b", **fields}
    )


def manifest(**fields: Any) -> dict[str, Any]:
    runtime = bundled_runtime("trl-sft")
    assert runtime is not None
    return trainjob_manifest(resolve(sft(**fields), runtime), STEP, "default")


def deciding(trainjob: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod spec of the training step, and its container that decides, as the controller makes them."""
    runtime = bundled_runtime("trl-sft")
    assert runtime is not None
    jobset = materialize(trainjob, runtime)[-1]
    job = named(jobset["spec"]["replicatedJobs"], "node")
    assert job is not None
    pod: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    container = named(pod["initContainers"], names.RESUME_POINT)
    assert container is not None
    return pod, container


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ([], None),
        (["--load_best_model_at_end"], "true"),
        (["--load-best-model-at-end", "--save_strategy", "steps"], "true"),
        (["--load_best_model_at_end=True"], "true"),
        (["--load_best_model_at_end", "False"], None),
        (["--load_best_model_at_end", "--load_best_model_at_end=no"], None),
        (["--metric_for_best_model", "loss"], None),
    ],
)
def test_pods_learn_whether_the_training_ends_with_its_best_checkpoint(extra: list[str], expected: str | None) -> None:
    _, container = deciding(manifest(settings={"extra": extra}))
    assert variables(container).get(names.LOADS_BEST_VARIABLE) == expected


@pytest.mark.parametrize("builtin", ["dpo", "kto"])
def test_trainer_with_a_reference_does_not_start_from_weights(cluster: EmbeddedCluster, builtin: str) -> None:
    """The reference would be the base model, and after a restart it would be for a training of all weights too."""
    with pytest.raises(Invalid, match="resume: weights:URI is not for trainers with a reference model"):
        submit_or_adopt(Submission(cluster, sft(resume="weights:s3://b/run", builtin=builtin), STEP, "default"))


def test_never_is_told_to_the_container_that_decides_with_which_job_it_is() -> None:
    _, container = deciding(manifest(resume="never", resume_secret="s"))
    told = variables(container)
    assert told.pop("TRAINJOB_NAME")
    told = {name: value for name, value in told.items() if name.startswith("TRAINWRIGHT_RESUME")}
    job = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"}}
    assert told == {names.RESUME_VARIABLE: "never", names.RESUME_JOB_VARIABLE: job}


@pytest.mark.medium
def test_weights_come_with_what_reads_them_and_the_export_of_the_run_itself(cluster: EmbeddedCluster) -> None:
    request = sft(resume="weights:gs://models/champion", resume_secret="store")
    made = submit_or_adopt(
        Submission(cluster, request, STEP, "default", latest_checkpoint=lambda _step: "s3://bucket/run/checkpoint-5")
    )
    told = variables(deciding(made.trainjob)[1])
    assert told[names.RESUME_VARIABLE] == "weights:gs://models/champion"
    assert told[names.RESUME_EXPORT_VARIABLE] == "s3://bucket/run/checkpoint-5"
    assert {"GOOGLE_SERVICE_ACCOUNT_KEY", "AWS_SECRET_ACCESS_KEY", names.RESUME_JOB_VARIABLE} < set(told)
    again = submit_or_adopt(
        Submission(cluster, request, STEP, "default", latest_checkpoint=lambda _step: "s3://bucket/run/checkpoint-9")
    )
    assert again.adopted


def test_weights_of_an_export_on_the_workspace_are_read_through_its_volume() -> None:
    champion = "weights:file:///trainwright-workspace/exports/a%20b/checkpoint-5"
    _, container = deciding(manifest(resume=champion, workspace="pvc://mine/team"))
    assert variables(container)[names.RESUME_VARIABLE] == "weights:file:///resume-source/team/exports/a%20b/checkpoint-5"
    (mount,) = (mount for mount in container["volumeMounts"] if mount["mountPath"] == "/resume-source")
    assert mount["name"] == names.INITIALIZER_VOLUME, "a pod has one volume of a claim"


@pytest.mark.parametrize("own", [{"command": ["python", "x.py"]}, {"func": "def train():\n    pass\n"}])
def test_weights_are_for_the_command_of_the_runtime(cluster: EmbeddedCluster, own: dict[str, Any]) -> None:
    with pytest.raises(
        Invalid, match=rf"resume: weights:URI is for the runtime's own command, and {next(iter(own))} replaces it"
    ):
        submit_or_adopt(Submission(cluster, sft(resume="weights:s3://b/run", **own), STEP, "default"))
    launched = sft(resume="weights:s3://b/run", command=["torchrun", "/resume/orderly_exit.py", "mine"])
    assert submit_or_adopt(Submission(cluster, launched, STEP, "default")).attempt == 1


def test_auto_learns_of_the_export_only_when_a_job_is_made(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    def with_secret(**fields: Any) -> TrainRequest:
        return sft(resume_secret="store", **fields)

    def latest(answer: str) -> Callable[[Identity], str]:
        return lambda _step: asked.append(answer) or answer  # type: ignore[func-returns-value]

    made = submit_or_adopt(
        Submission(cluster, with_secret(), STEP, "default", latest_checkpoint=latest("s3://bucket/run/checkpoint-5"))
    )
    again = submit_or_adopt(
        Submission(cluster, with_secret(), STEP, "default", latest_checkpoint=latest("s3://bucket/run/checkpoint-9"))
    )
    without = submit_or_adopt(Submission(cluster, with_secret(), STEP, "default"))
    assert (again.adopted, without.adopted, asked) == (True, True, ["s3://bucket/run/checkpoint-5"])
    _, container = deciding(made.trainjob)
    assert variables(container)[names.RESUME_EXPORT_VARIABLE] == "s3://bucket/run/checkpoint-5"
    never = submit_or_adopt(
        Submission(cluster, with_secret(resume="never"), Identity("kfp", "never", "n"), "default", latest_checkpoint=latest("x"))
    )
    assert names.RESUME_EXPORT_VARIABLE not in variables(deciding(never.trainjob)[1])
    assert len(asked) == 1
    empty = submit_or_adopt(
        Submission(cluster, with_secret(), Identity("kfp", "empty", "e"), "default", latest_checkpoint=latest(""))
    )
    assert PATCH_MANAGER not in [patch["manager"] for patch in empty.trainjob["spec"]["runtimePatches"]]
    none = submit_or_adopt(
        Submission(cluster, sft(), Identity("kfp", "none", "s"), "default", latest_checkpoint=latest("s3://bucket/run"))
    )
    assert PATCH_MANAGER not in [patch["manager"] for patch in none.trainjob["spec"]["runtimePatches"]]
    assert "without resume_secret or store_secret the pods cannot read the export s3://bucket/run" in caplog.text


def test_ended_earlier_generations_are_kept_or_deleted(cluster: EmbeddedCluster, set_status: Any) -> None:
    first = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    set_status(first.trainjob, "Failed")
    second = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    assert {name_of(job) for job in cluster.list(TRAINJOB).items} == {first.name, second.name}
    set_status(second.trainjob, "Failed")
    other = submit_or_adopt(Submission(cluster, program_request(), Identity("kfp", "run", "other"), "default"))
    set_status(other.trainjob, "Failed")
    third = submit_or_adopt(Submission(cluster, program_request(previous_jobs="delete"), STEP, "default"))
    assert third.attempt == 3
    left = [name_of(job) for job in cluster.list(TRAINJOB).items if "deletionTimestamp" not in job["metadata"]]
    assert sorted(left) == sorted([other.name, third.name])


def test_a_generation_that_was_only_superseded_is_not_deleted(cluster: EmbeddedCluster) -> None:
    from trainwright.jobs import suspend_job

    first = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    suspend_job(cluster, first.trainjob, superseded("its task was cleared"))
    submit_or_adopt(Submission(cluster, program_request(previous_jobs="delete"), STEP, "default"))
    assert "deletionTimestamp" not in cluster.get(TRAINJOB, first.name, "default")["metadata"]


@pytest.mark.medium
def test_a_crash_before_the_deletion_is_made_up_for_by_the_next_try(
    cluster: EmbeddedCluster, set_status: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    set_status(first.trainjob, "Failed")
    submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))  # the try that was killed
    assert submit_or_adopt(Submission(cluster, program_request(previous_jobs="delete"), STEP, "default")).adopted
    assert "deletionTimestamp" in cluster.get(TRAINJOB, first.name, "default")["metadata"]


def test_who_may_not_delete_keeps_the_earlier_one_and_gets_his_job(
    cluster: EmbeddedCluster, set_status: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = submit_or_adopt(Submission(cluster, program_request(), STEP, "default"))
    set_status(first.trainjob, "Failed")
    narrow = refusing(cluster, "delete")
    assert submit_or_adopt(Submission(narrow, program_request(previous_jobs="delete"), STEP, "default")).attempt == 2
    assert "event=previous_attempt_not_deleted" in caplog.text
