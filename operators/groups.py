"""The groups of settings of a training step, as an operator takes them: each is a plain dict, whose names an editor completes.

`placement=Placement(queue_name="gpus")` and `placement={"queue_name": "gpus"}` are the same. Values may be templates and results of
other tasks, at any depth. The names, types and descriptions are those of `trainwright.jobs.request.groups`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, TypedDict


class Placement(TypedDict, total=False):
    """Where the pods run."""

    # Written by `make edges` from Placement.
    queue_name: str
    """Kueue LocalQueue: the job starts when the queue admits it."""
    priority_class: str
    """Kueue WorkloadPriorityClass; requires queue_name."""
    topology: str
    """required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), where KEY is a node label."""
    node_selector: dict[str, Any] | str
    """Node selector of the training pods; does not apply to initializers."""
    tolerations: list[Any] | str
    """Tolerations of the training pods, in addition to the runtime's."""
    affinity: dict[str, Any] | str
    """Node and pod affinity of the training pods."""
    volumes: list[Any] | str
    """Volumes of the training pods, in addition to the runtime's and the workspace."""
    volume_mounts: list[Any] | str
    """Where the training containers mount volumes: those of `volumes`, or of the runtime by name."""
    annotations: dict[str, Any] | str
    """Annotations of the TrainJob."""
    runtime_patches: list[Any] | str
    """Additional spec.runtimePatches, each with manager and trainingRuntimeSpec."""
    runtime_kind: str
    """ClusterTrainingRuntime, or TrainingRuntime in the job's namespace."""
    submission_mode: str
    """auto, trainjob or jobset, see docs/submission.md. Empty: that of the connection or TRAINWRIGHT_SUBMISSION_MODE, else auto."""
    memory_check: str
    """Compare an estimate of the memory that sft, dpo or kto needs with that of the nodes before submission: warn, fail or off."""
    # End of what `make edges` writes.


class Limits(TypedDict, total=False):
    """When a job has failed, and how often it may begin again."""

    # Written by `make edges` from Limits.
    queue_timeout_seconds: int | str | timedelta
    """Maximum seconds that the job may be queued or suspended. 0: no limit."""
    start_timeout_seconds: int | str | timedelta
    """Maximum seconds until all pods of the training have started; time of initializers does not count. 0: no limit."""
    run_timeout_seconds: int | str | timedelta
    """Maximum seconds of training; also set as activeDeadlineSeconds, which the cluster enforces. Empty: that of the manifest, else
    a week. 0: no limit."""
    lost_node_timeout_seconds: int | str | timedelta
    """Maximum seconds for which pods may not end on a lost node; the job is then cancelled as on_cancel says. 0: no limit."""
    fail_if_stuck: bool | str
    """Whether to fail when waiting cannot help: at once for an invalid image name or a command that the image does not have, after a
    minute without a claim, Secret or queue, after ten without the image or if a policy refuses the pods."""
    fail_on_divergence: bool | str
    """Whether to fail as soon as the loss or the gradient norm is not finite in several reports, one after another. Checkpoints
    stay."""
    restarts: int | str
    """Restarts of a failed pod within one TrainJob. Empty or 0: none for a function or code, else as the runtime says."""
    preemption_budget: int | str
    """Maximum automatic resubmissions after preemption, for the whole step."""
    job_retries: int | str
    """Maximum automatic resubmissions of a failed job, for the whole step: from its checkpoint, and not after a failure that would
    only repeat, nor at run_timeout_seconds. Kubeflow Pipelines retries no failed step, see docs/pipelines.md; Airflow does."""
    # End of what `make edges` writes.


class Ending(TypedDict, total=False):
    """What happens to jobs at a cancellation, without a waiting step, and when the step is repeated."""

    # Written by `make edges` from Ending.
    on_cancel: str
    """What to do with the job when its step is cancelled, exceeds a deadline or stops waiting: suspend, delete or keep it."""
    waiter_lease_seconds: int | str | timedelta
    """Seconds after which a job whose waiting step is gone may be suspended, by a controller of Trainwright or a later step of its
    run; at least 30. 0: never. A step of Kubeflow Pipelines: 600."""
    adopt_finished: bool | str
    """Whether a job that has succeeded is taken as the result of another run of the orchestrator with the same id."""
    on_changed_request: str
    """What a retry whose settings have changed does with a job that still runs: adopt it, with a warning, or replace it."""
    previous_jobs: str
    """Whether to keep or delete finished jobs of this step when the next one is submitted."""
    tie_to_run: bool | str
    """Whether the TrainJob is deleted together with the workflow of its pipeline run, and labelled with it."""
    # End of what `make edges` writes.


class Logging(TypedDict, total=False):
    """Which logs of the job are shown."""

    # Written by `make edges` from Logging.
    logs: str
    """Which logs to stream: a rank, all, STEP:RANK, STEP:all, or none."""
    log_bytes: int | str
    """Maximum bytes of logs to stream; beyond that only the last lines are shown, when the job ends."""
    # End of what `make edges` writes.


class Secrets(TypedDict, total=False):
    """Names of Secrets whose keys pods get as variables."""

    # Written by `make edges` from Secrets.
    store_secret: str
    """Secret with object store credentials (AWS_ACCESS_KEY_ID ...), for datasets, models and exports to resume from."""
    hub_secret: str
    """Secret with the key HF_TOKEN, for datasets, models and the training program."""
    dataset_secret: str
    """Secret whose keys become environment variables of the dataset initializer."""
    model_secret: str
    """Secret whose keys become environment variables of the model initializer."""
    resume_secret: str
    """Secret with credentials for reading exports to resume from. Defaults to store_secret."""
    # End of what `make edges` writes.


class Data(TypedDict, total=False):
    """What the initializers of dataset and model must know, and the data cache."""

    # Written by `make edges` from Data.
    metadata_loc: str
    """Where a cached table is: metadata.json of an Iceberg table, or a file or folder of Parquet or CSV."""
    num_data_nodes: int | str
    """Number of pods that have a cached table in memory. Empty or 0: 2."""
    worker_mem: str
    """Memory of each of these pods. Empty: 2Gi."""
    dataset_env: dict[str, Any] | str
    """Environment variables of the dataset initializer."""
    model_env: dict[str, Any] | str
    """Environment variables of the model initializer."""
    model_shape: dict[str, Any] | str
    """Sizes of the model, as the step that prepares it returns them, for the estimate of memory_check."""
    # End of what `make edges` writes.


class Harness(TypedDict, total=False):
    """How lm-evaluation-harness runs its tasks."""

    # Written by `make edges` from Harness.
    few_shot: int | str
    """Examples in each prompt of a task; -1: as the task says."""
    task_limit: int | str
    """Maximum number of examples of each task; 0: all."""
    # End of what `make edges` writes.


class Deferral(TypedDict, total=False):
    """How a deferred task waits."""

    log_poll_interval: float | timedelta
    """Seconds between two polls of the log while the task is deferred; 0 disables polling."""
    min_defer_seconds: float | timedelta
    """Minimum time between deferral and event; below 10, Airflow 3.3 may fail the task."""


_GROUPS: dict[str, type[Any]] = {
    "placement": Placement,
    "limits": Limits,
    "ending": Ending,
    "logging": Logging,
    "secrets": Secrets,
    "data": Data,
    "harness": Harness,
    "deferral": Deferral,
}
OF_PIPELINES = {
    "job_retries": "for Kubeflow Pipelines; set retries of the task instead",
    "tie_to_run": "for Kubeflow Pipelines: a run of Airflow has no object in the cluster",
}
"""Settings that only Kubeflow Pipelines heeds, with the reason and what to do."""


def check_groups(**groups: Any) -> None:
    """Check the names of settings in groups when a DAG is parsed, as far as they are known then. Raises ValueError."""
    for name, given in groups.items():
        known = _GROUPS[name].__annotations__
        if isinstance(given, Mapping) and (other := next((each for each in OF_PIPELINES if each in given), "")):
            raise ValueError(f"{name}.{other}: {OF_PIPELINES[other]}")
        if isinstance(given, Mapping) and (unknown := next((each for each in given if each not in known), None)):
            raise ValueError(f"{name}.{str(unknown)[:80]}: unknown; {_about(str(unknown), known)}")
    on_cancel = (groups.get("ending") or {}).get("on_cancel") if isinstance(groups.get("ending"), Mapping) else None
    if isinstance(on_cancel, str) and "{{" not in on_cancel and on_cancel not in ("suspend", "delete", "keep"):
        raise ValueError(f"ending.on_cancel: {on_cancel!r}: expected suspend, delete or keep")


def check_flat_names(groups: Collection[str], given: Collection[str]) -> None:
    """Refuse settings of these groups among the arguments of an operator, which knows none of them. Raises TypeError with the path."""
    for group in groups:
        if names := [name for name in given if name in _GROUPS[group].__annotations__]:
            raise TypeError(f"{names[0]}: it is a setting of a group: {group}={{{names[0]!r}: ...}}")


def _about(unknown: str, known: Collection[str]) -> str:
    """Return in which group a name is known, else the nearest ones of this group."""
    # Rather a wrong group than a misspelt name.
    if groups := [group for group, one in _GROUPS.items() if unknown in one.__annotations__]:
        return f"it is {groups[0]}.{unknown}"
    from trainwright.text.suggest import suggest

    return suggest(unknown, list(known))
