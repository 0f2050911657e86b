"""The settings of a training step that most trainings leave alone, in groups: a person reads the names and knows where to look.

At each edge a group is one parameter, an object; on the command line its settings are options.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from trainwright.jobs.logs.log_options import TICK_BYTES, TOTAL_BYTES, Budget, LogSelector, LogStreamOptions
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.jobs.request.setting import Check, Form, Settings, setting
from trainwright.jobs.request.setting_types import (
    Count,
    Deadline,
    Env,
    Labels,
    LeaseSeconds,
    Number,
    Object,
    Objects,
    Seconds,
    checks,
)
from trainwright.jobs.request.setting_values import Topology, parse_as, parse_object
from trainwright.jobs.state.deadline_timer import START_TIMEOUT_SECONDS

PREEMPTION_BUDGET = 3
LEASE_SECONDS = 1800
STEP_LEASE_SECONDS = 600
"""Of a job for which a pod waits: it is seldom cut off from its cluster for long, as a triggerer may be."""


def _selector(value: Any) -> LogSelector | None:
    return value if value is None or isinstance(value, LogSelector) else LogSelector.parse(str(value))


def _shape(value: Any) -> ModelShape | None:
    return value if isinstance(value, ModelShape) else ModelShape.of(sizes) if (sizes := parse_object(value)) else None


def _location(value: str) -> str:
    if not value:
        return value
    from trainwright.datacache.settings import location_problem  # most trainings have no cache

    if problem := location_problem(value):
        raise ValueError(problem)
    return value


def _quantity(value: str) -> str:
    if not value:
        return value
    from trainwright.datacache.settings import quantity_problem

    if problem := quantity_problem(value):
        raise ValueError(problem)
    return value


@dataclass(frozen=True, kw_only=True)
class Placement(Settings):
    """Where the pods run: the queue, the nodes, the volumes, and what else their cluster must know."""

    queue_name: str = setting("Kueue LocalQueue: the job starts when the queue admits it.", "", example="gpu-queue")
    priority_class: str = setting("Kueue WorkloadPriorityClass; requires queue_name.", "")
    topology: Annotated[Topology | None, Form("text", partial(parse_as, Topology), is_parsed=True)] = setting(
        "required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), where KEY is a node label.",
        None,
        example="required:topology.kubernetes.io/zone",
    )
    node_selector: Labels = setting(
        "Node selector of the training pods; does not apply to initializers.", {}, example='{"gpu": "h100"}'
    )
    tolerations: Objects = setting(
        "Tolerations of the training pods, in addition to the runtime's.",
        [],
        example='[{"key": "nvidia.com/gpu", "operator": "Exists"}]',
    )
    affinity: Object = setting("Node and pod affinity of the training pods.", {}, example='{"podAntiAffinity": {...}}')
    volumes: Objects = setting(
        "Volumes of the training pods, in addition to the runtime's and the workspace.",
        [],
        example='[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]',
        place="inside",
    )
    volume_mounts: Objects = setting(
        "Where the training containers mount volumes: those of `volumes`, or of the runtime by name.",
        [],
        example='[{"name": "data", "mountPath": "/data"}]',
    )
    annotations: Labels = setting("Annotations of the TrainJob.", {})
    runtime_patches: Objects = setting(
        "Additional spec.runtimePatches, each with manager and trainingRuntimeSpec.",
        [],
        example='[{"manager": "example.com/team", "trainingRuntimeSpec": {...}}]',
        place="inside",
    )
    runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = setting(
        "ClusterTrainingRuntime, or TrainingRuntime in the job's namespace.", "ClusterTrainingRuntime"
    )
    submission_mode: Literal["", "auto", "trainjob", "jobset"] = setting(
        "auto, trainjob or jobset, see docs/submission.md. Empty: that of the connection or TRAINWRIGHT_SUBMISSION_MODE, else auto.",
        "",
    )
    memory_check: Literal["warn", "fail", "off"] = setting(
        "Compare an estimate of the memory that sft, dpo or kto needs with that of the nodes before submission: warn, fail or off.",
        "warn",
    )

    def problems(self) -> Iterator[str]:
        yield from checks().volume_problems(self.volumes, self.volume_mounts)

    def scheduling_problems(self, queue_label: str) -> Iterator[str]:
        """Yield what is wrong with queue, topology, tolerations and affinity, given the queue that a label names, if one does."""
        yield from checks().scheduling_problems(
            queue=self.queue_name or queue_label,
            priority_class=self.priority_class,
            topology=self.topology,
            tolerations=self.tolerations,
            affinity=self.affinity,
        )


@dataclass(frozen=True, kw_only=True)
class Limits(Settings):
    """When a job has failed, and how often it may begin again."""

    queue_timeout_seconds: Seconds = setting("Maximum seconds that the job may be queued or suspended. 0: no limit.", None)
    start_timeout_seconds: Seconds = setting(
        "Maximum seconds until all pods of the training have started; time of initializers does not count. 0: no limit.",
        START_TIMEOUT_SECONDS,
    )
    run_timeout_seconds: Deadline = setting(
        "Maximum seconds of training; also set as activeDeadlineSeconds, which the cluster enforces. Empty: that of the manifest, "
        "else a week. 0: no limit.",
        None,
    )
    lost_node_timeout_seconds: Seconds = setting(
        "Maximum seconds for which pods may not end on a lost node; the job is then cancelled as on_cancel says. 0: no limit.",
        None,
    )
    fail_if_stuck: bool = setting(
        "Whether to fail when waiting cannot help: at once for an invalid image name or a command that the image does not have, after "
        "a minute without a claim, Secret or queue, after ten without the image or if a policy refuses the pods.",
        True,
    )
    fail_on_divergence: bool = setting(
        "Whether to fail as soon as the loss or the gradient norm is not finite in several reports, one after another. "
        "Checkpoints stay.",
        True,
    )
    restarts: Number = setting(
        "Restarts of a failed pod within one TrainJob. Empty or 0: none for a function or code, else as the runtime says.", None
    )
    preemption_budget: Count = setting("Maximum automatic resubmissions after preemption, for the whole step.", PREEMPTION_BUDGET)
    job_retries: Count = setting(
        "Maximum automatic resubmissions of a failed job, for the whole step: from its checkpoint, and not after a failure that would "
        "only repeat, nor at run_timeout_seconds. Kubeflow Pipelines retries no failed step, see docs/pipelines.md; Airflow does.",
        0,
    )

    def given_values(self) -> dict[str, Any]:
        """As of the base class; no limit is 0, as None would be read as the default."""
        return super().given_values() | ({"start_timeout_seconds": 0} if self.start_timeout_seconds is None else {})


@dataclass(frozen=True, kw_only=True)
class Ending(Settings):
    """What happens to jobs: at a cancellation, without a waiting step, and when the step or its run is repeated."""

    on_cancel: Literal["suspend", "delete", "keep"] = setting(
        "What to do with the job when its step is cancelled, exceeds a deadline or stops waiting: suspend, delete or keep it.",
        "suspend",
    )
    waiter_lease_seconds: LeaseSeconds = setting(
        "Seconds after which a job whose waiting step is gone may be suspended, by a controller of Trainwright or a later step of "
        f"its run; at least 30. 0: never. A step of Kubeflow Pipelines: {STEP_LEASE_SECONDS}.",
        LEASE_SECONDS,
    )
    adopt_finished: bool = setting(
        "Whether a job that has succeeded is taken as the result of another run of the orchestrator with the same id.", False
    )
    on_changed_request: Literal["adopt", "replace"] = setting(
        "What a retry whose settings have changed does with a job that still runs: adopt it, with a warning, or replace it.",
        "adopt",
    )
    previous_jobs: Literal["keep", "delete"] = setting(
        "Whether to keep or delete finished jobs of this step when the next one is submitted.", "keep"
    )
    tie_to_run: bool = setting(
        "Whether the TrainJob is deleted together with the workflow of its pipeline run, and labelled with it.", True
    )


@dataclass(frozen=True, kw_only=True)
class Logging(Settings):
    """Which logs of the job are shown."""

    logs: Annotated[LogSelector | None, Form("text", _selector, is_parsed=True)] = setting(
        "Which logs to stream: a rank, all, STEP:RANK, STEP:all, or none.", LogSelector()
    )
    log_bytes: Count = setting(
        "Maximum bytes of logs to stream; beyond that only the last lines are shown, when the job ends.",
        TOTAL_BYTES,
        unit="bytes",
    )

    @property
    def words(self) -> str:
        """Which logs, as a person writes it."""
        return "none" if self.logs is None else str(self.logs)

    @property
    def options(self) -> LogStreamOptions | None:
        """What to show, None for nothing."""
        if self.logs is None or not self.log_bytes:
            return None
        return LogStreamOptions(self.logs, Budget(TICK_BYTES, self.log_bytes))

    def given_values(self) -> dict[str, Any]:
        """As of the base class; nothing to show is a word, as None would be read as the default."""
        return super().given_values() | ({"logs": "none"} if self.logs is None else {})


@dataclass(frozen=True, kw_only=True)
class Secrets(Settings):
    """Names of Secrets whose keys pods get as variables."""

    store_secret: str = setting(
        "Secret with object store credentials (AWS_ACCESS_KEY_ID ...), for datasets, models and exports to resume from.",
        "",
    )
    hub_secret: str = setting("Secret with the key HF_TOKEN, for datasets, models and the training program.", "")
    dataset_secret: str = setting("Secret whose keys become environment variables of the dataset initializer.", "")
    model_secret: str = setting("Secret whose keys become environment variables of the model initializer.", "")
    resume_secret: str = setting("Secret with credentials for reading exports to resume from. Defaults to store_secret.", "")


@dataclass(frozen=True, kw_only=True)
class Data(Settings):
    """What the initializers of dataset and model must know, and the data cache."""

    metadata_loc: Annotated[str, Check(_location)] = setting(
        "Where a cached table is: metadata.json of an Iceberg table, or a file or folder of Parquet or CSV.",
        "",
        example="s3://lake/orders/metadata/00004.metadata.json",
        place="uri",
    )
    num_data_nodes: Number = setting("Number of pods that have a cached table in memory. Empty or 0: 2.", None, example="2")
    worker_mem: Annotated[str, Check(_quantity)] = setting("Memory of each of these pods. Empty: 2Gi.", "", example="8Gi")
    dataset_env: Env = setting("Environment variables of the dataset initializer.", {}, place="inside")
    model_env: Env = setting("Environment variables of the model initializer.", {}, place="inside")
    model_shape: Annotated[ModelShape | None, Form("object", _shape, is_parsed=True)] = setting(
        "Sizes of the model, as the step that prepares it returns them, for the estimate of memory_check.", None
    )
