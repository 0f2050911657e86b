"""The request of a training step: one definition for the KFP component, the Airflow operator and the command line.

Each setting has the same name, type and unit everywhere, and belongs to a group; docs/reference/parameters.md is generated from it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from trainwright.api.names import QUEUE_LABEL
from trainwright.cluster.options import FieldValidation
from trainwright.datacache.settings import SCHEME, location_problem, quantity_problem, uri_problem
from trainwright.jobs.code.function_arguments import check_names, checked_arguments, signature_of
from trainwright.jobs.code.function_source import NamedSource, source_of
from trainwright.jobs.credentials.secret_detection import reject_literals
from trainwright.jobs.diagnosis.preemption import BUDGET
from trainwright.jobs.logs.follow_logs import LogSelector
from trainwright.jobs.logs.stream_logs import TOTAL_BYTES
from trainwright.jobs.request.field_schemas import volume_problems
from trainwright.jobs.request.manifest_source import checked_manifest
from trainwright.jobs.request.model_shape import ModelShape
from trainwright.jobs.request.resume import AUTO, validate_resume
from trainwright.jobs.request.scheduling import Topology, scheduling_problems
from trainwright.jobs.request.setting import Place
from trainwright.jobs.request.setting_types import (
    Deadline,
    Env,
    Labels,
    Nodes,
    Number,
    Object,
    Objects,
    Resources,
    Seconds,
    Structure,
    Texts,
)
from trainwright.jobs.request.setting_values import parse_structure, seconds_of
from trainwright.jobs.request.validation_words import in_words
from trainwright.jobs.request.variables import Variables, reference_problems
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.deadline_timer import DEADLINE, RUN_TIMEOUT_SECONDS, START_TIMEOUT_SECONDS
from trainwright.jobs.state.run_folder import prepared_folder
from trainwright.text.hub_names import with_scheme

Group = Literal["what", "data", "workspace", "placement", "deadlines", "logs", "resume", "cancellation", "secrets"]
DEFAULT_RUNTIME, FUNCTION_RUNTIME = "trl-sft", "torch-distributed"
"""The default runtime, and the default for a function or code."""
_IMAGE = re.compile(r"[^\s]+")
_ALLOWED_WITH_MANIFEST = {"labels", "annotations", "runtime_patches"}
_CACHE_SETTINGS = ("metadata_loc", "num_data_nodes", "worker_mem")
_FUNCTION_SETTINGS = ("func_args", "packages_to_install", "pip_index_urls")


_PODS = ("evaluate", "step")
"""Settings of any pod: an evaluation, and a step of files that runs in a pod, take them too."""


def _setting(
    group: Group,
    default: Any,
    description: str,
    *,
    unit: str = "",
    example: str = "",
    used_by: tuple[str, ...] = (),
    place: Place = "",
) -> Any:
    more: dict[str, Any] = {"group": group, "unit": unit, "example": example, "used_by": list(used_by), "place": place}
    return Field(default=default, description=description, json_schema_extra=more)


class TrainRequest(BaseModel):
    """One training step. Empty values keep those of the runtime.

    Credentials must be references: a literal that looks like a credential raises LiteralSecret.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False)

    # what runs
    runtime: Annotated[str, Field(max_length=253)] = _setting(
        "what",
        "",
        "Training runtime. Defaults to the builtin trainer's runtime, torch-distributed for a function or code, else trl-sft.",
        example="torch-distributed",
        used_by=("step",),
    )
    runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = _setting(
        "what", "ClusterTrainingRuntime", "ClusterTrainingRuntime, or TrainingRuntime in the job's namespace.", used_by=("step",)
    )
    builtin: str = _setting(
        "what",
        "",
        "Builtin trainer: sft, dpo, kto or torchtune. Defaults to that of the runtime, such as sft, if no other program is set.",
        example="dpo",
    )
    settings: Object = _setting(
        "what",
        {},
        "Settings of the builtin trainer, see docs/settings.md.",
        example='{"learning_rate": 1e-4}',
        place="inside",
    )
    image: str = _setting(
        "what", "", "Image of the job's main container.", example="registry.example.com/trainer:1.4", used_by=_PODS
    )
    command: Texts = _setting(
        "what",
        [],
        "Command of that container; with code, it runs in the code's folder.",
        example='["torchrun", "train.py"]',
    )
    args: Texts = _setting("what", [], "Arguments of the command.")
    env: Env = _setting(
        "what",
        {},
        'Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials are '
        "rejected.",
        example='{"WANDB_PROJECT": "support"}',
        used_by=_PODS,
        place="inside",
    )
    func: Annotated[NamedSource | None, BeforeValidator(source_of)] = _setting(
        "what", None, "Training function. Its source is sent, as in the Kubeflow SDK; nothing is pickled."
    )
    func_args: Object = _setting("what", {}, "Keyword arguments of the function, as JSON.")
    packages_to_install: Texts = _setting(
        "what", [], "Python packages for a function or code, installed on every node.", example='["einops==0.8.0"]'
    )
    pip_index_urls: Texts = _setting(
        "what", [], "Package indexes for these packages: the first replaces PyPI, the others are additional."
    )
    code: str = _setting(
        "what",
        "",
        "Folder, or git+https://HOST/PATH@REVISION[#subdirectory=FOLDER], that is packed and unpacked on every node.",
        example="git+https://github.com/org/repo@v1.2#subdirectory=training",
        place="here",
    )
    manifest: Annotated[Structure | None, BeforeValidator(checked_manifest)] = _setting(
        "what",
        None,
        "Complete TrainJob, as an object, YAML text, or the path of a YAML file.",
        place="here",
    )
    num_nodes: Nodes = _setting("what", None, "Number of training nodes. Empty or 0: the runtime's.", example="2")
    num_proc_per_node: Number = _setting("what", None, "Number of processes per node. Empty or 0: one per GPU, else one per CPU.")
    resources_per_node: Resources = _setting(
        "what",
        {},
        'Resources per node: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ..., "requests": ...}.',
        example='{"nvidia.com/gpu": 1, "memory": "32Gi"}',
        used_by=_PODS,
    )
    labels: Labels = _setting("what", {}, "Labels of the TrainJob.", example='{"team": "support"}', used_by=_PODS)
    annotations: Labels = _setting("what", {}, "Annotations of the TrainJob.", used_by=_PODS)
    runtime_patches: Objects = _setting(
        "what",
        [],
        "Additional spec.runtimePatches, each with manager and trainingRuntimeSpec.",
        example='[{"manager": "example.com/team", "trainingRuntimeSpec": {...}}]',
        place="inside",
    )

    # data
    dataset_uri: str = _setting(
        "data",
        "",
        "Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path; see docs/sources.md. cache://SCHEMA/TABLE reads a "
        "table from a data cache; see docs/data-cache.md.",
        example="s3://data/support.jsonl",
        place="uri",
    )
    metadata_loc: str = _setting(
        "data",
        "",
        "Where a cached table is: metadata.json of an Iceberg table, or a file or folder of Parquet or CSV.",
        example="s3://lake/orders/metadata/00004.metadata.json",
        place="uri",
    )
    num_data_nodes: Number = _setting(
        "data", None, "Number of pods that have a cached table in memory. Empty or 0: 2.", example="2"
    )
    worker_mem: str = _setting("data", "", "Memory of each of these pods. Empty: 2Gi.", example="8Gi")
    dataset_digest: str = _setting("data", "", "Digest of the prepared dataset; nodes reject any other.")
    dataset_env: Env = _setting("data", {}, "Environment variables of the dataset initializer.", place="inside")
    model_uri: str = _setting(
        "data",
        "",
        "Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.",
        example="hf://Qwen/Qwen3-0.6B",
        place="uri",
    )
    model_digest: str = _setting("data", "", "Digest of the prepared model; nodes reject any other.")
    model_env: Env = _setting("data", {}, "Environment variables of the model initializer.", place="inside")
    model_shape: Object = _setting(
        "data", {}, "Sizes of the model, as the step that prepares it returns them, for the estimate of memory_check."
    )

    # workspace
    workspace: str = _setting(
        "workspace",
        "",
        "Volume that the steps of a run share: pvc://CLAIM[/FOLDER], or with ?size=20Gi[&class=&access=&retain=] to create it. "
        "The run's folder on it is mounted at /workspace.",
        example="pvc://training?size=50Gi",
        place="uri",
    )

    # placement
    queue_name: str = _setting(
        "placement", "", "Kueue LocalQueue: the job starts when the queue admits it.", example="gpu-queue", used_by=_PODS
    )
    priority_class: str = _setting("placement", "", "Kueue WorkloadPriorityClass; requires queue_name.", used_by=_PODS)
    topology: str = _setting(
        "placement",
        "",
        "required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), where KEY is a node label.",
        example="required:topology.kubernetes.io/zone",
        used_by=("evaluate",),
    )
    node_selector: Labels = _setting(
        "placement",
        {},
        "Node selector of the training pods; does not apply to initializers.",
        example='{"gpu": "h100"}',
        used_by=_PODS,
    )
    tolerations: Objects = _setting(
        "placement",
        [],
        "Tolerations of the training pods, in addition to the runtime's.",
        example='[{"key": "nvidia.com/gpu", "operator": "Exists"}]',
        used_by=_PODS,
    )
    affinity: Object = _setting(
        "placement", {}, "Node and pod affinity of the training pods.", example='{"podAntiAffinity": {...}}', used_by=_PODS
    )
    memory_check: Literal["warn", "fail", "off"] = _setting(
        "placement",
        "warn",
        "Compare an estimate of the memory that sft, dpo or kto needs with that of the nodes before submission: warn, fail or off.",
    )
    volumes: Objects = _setting(
        "placement",
        [],
        "Volumes of the training pods, besides the runtime's and the workspace.",
        example='[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]',
        place="inside",
    )
    volume_mounts: Objects = _setting(
        "placement",
        [],
        "Where the training containers mount volumes: those of `volumes`, or of the runtime by name.",
        example='[{"name": "data", "mountPath": "/data"}]',
    )

    # deadlines
    queue_timeout_seconds: Seconds = _setting(
        "deadlines", None, "Maximum seconds that the job may be queued or suspended. 0: no limit.", used_by=_PODS
    )
    start_timeout_seconds: Seconds = _setting(
        "deadlines",
        START_TIMEOUT_SECONDS,
        "Maximum seconds until all pods of the training have started; time of initializers does not count. 0: no limit.",
        used_by=_PODS,
    )
    run_timeout_seconds: Deadline = _setting(
        "deadlines",
        None,
        "Maximum seconds of training; also set as activeDeadlineSeconds, which the cluster enforces. Empty or -1: that of the "
        "manifest, else a week. 0: no limit.",
        used_by=_PODS,
    )

    fail_if_stuck: bool = _setting(
        "deadlines",
        True,
        "Whether to fail when waiting cannot help: at once for an invalid image name or a command that the image does not have, after "
        "a minute without a claim, Secret or queue, after ten without the image or if a policy refuses the pods.",
    )
    fail_on_divergence: bool = _setting(
        "deadlines",
        True,
        "Whether to fail as soon as the loss or the gradient norm is not finite in several reports, one after another. "
        "Checkpoints stay.",
    )
    lost_node_timeout_seconds: Seconds = _setting(
        "deadlines",
        None,
        "Maximum seconds for which pods may not end on a lost node; the job is then cancelled as on_cancel says. 0: no limit.",
        used_by=("step",),
    )

    # logs
    logs: str = _setting("logs", "0", "Which logs to stream: a rank, all, STEP:RANK, STEP:all, or none.", used_by=("evaluate",))
    log_bytes: Annotated[int, Field(ge=0)] = _setting(
        "logs",
        TOTAL_BYTES,
        "Maximum bytes of logs to stream; beyond that only the last lines are shown, when the job ends.",
        unit="bytes",
        used_by=("evaluate",),
    )

    # resume
    resume: str = _setting(
        "resume",
        AUTO,
        "Where a new job starts: auto (the run's last checkpoint, if the request has not changed), last (also if it has), never, the "
        "URI of an exported checkpoint, or weights:URI "
        "(the run's last checkpoint, else the weights of that export at step 0).",
        example="weights:s3://models/support/run-7/step-900",
        place="uri",
    )
    export_uri: str = _setting(
        "resume",
        "",
        "Where the run exports checkpoints; resume=auto starts from there if the workspace has no checkpoint.",
        example="s3://models/support",
        place="uri",
    )
    previous_jobs: Literal["keep", "delete"] = _setting(
        "resume", "keep", "Whether to keep or delete finished jobs of this step when the next one is submitted."
    )
    preemption_budget: Annotated[int, Field(ge=0)] = _setting(
        "resume", BUDGET, "Maximum automatic resubmissions after preemption, for the whole step."
    )
    restarts: Number = _setting(
        "resume",
        None,
        "Restarts of a failed pod within one TrainJob. Empty or 0: none for a function or code, else as the runtime says.",
    )
    on_changed_request: Literal["adopt", "replace"] = _setting(
        "resume",
        "adopt",
        "What a retry whose settings have changed does with a job that still runs: adopt it, with a warning, or replace it.",
    )
    adopt_finished: bool = _setting(
        "resume",
        False,
        "Whether a job that has succeeded is taken as the result of another run of the orchestrator with the same id.",
    )

    # cancellation
    on_cancel: Literal["suspend", "delete", "keep"] = _setting(
        "cancellation",
        "suspend",
        "What to do with the job when its step is cancelled, exceeds a deadline or stops waiting: suspend, delete or keep it.",
        used_by=_PODS,
    )

    waiter_lease_seconds: Annotated[int, Field(ge=0), BeforeValidator(seconds_of)] = _setting(
        "cancellation",
        1800,
        "Seconds after which a job whose waiting step is gone may be suspended, by a controller of Trainwright or a later step of "
        "its run; at least 30. 0: never.",
        used_by=_PODS,
    )

    # secrets
    store_secret: str = _setting(
        "secrets",
        "",
        "Secret with object store credentials (AWS_ACCESS_KEY_ID ...), for datasets, models and exports to resume from.",
        used_by=("step",),
    )
    hub_secret: str = _setting(
        "secrets", "", "Secret with the key HF_TOKEN, for datasets, models and the training program.", used_by=_PODS
    )
    dataset_secret: str = _setting("secrets", "", "Secret whose keys become environment variables of the dataset initializer.")
    model_secret: str = _setting("secrets", "", "Secret whose keys become environment variables of the model initializer.")
    resume_secret: str = _setting(
        "secrets", "", "Secret with credentials for reading exports to resume from. Defaults to store_secret."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_credentials(cls, fields: Any) -> Any:
        """Runs first, so that no other error message contains a credential."""
        if isinstance(fields, dict):
            reject_literals({name: _parse_for_detection(name, value) for name, value in fields.items()})
        return fields

    @field_validator("func_args")
    @classmethod
    def _arguments_fit_function(cls, arguments: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        function = info.data.get("func")
        return checked_arguments(function, arguments) if function is not None else arguments

    @field_validator("env", "dataset_env", "model_env")
    @classmethod
    def _variables_are_known(cls, variables: Variables) -> Variables:
        for name, value in variables.items():
            if isinstance(value, dict) and (problems := "; ".join(reference_problems(name, value))):
                raise ValueError(problems)
        return variables

    @field_validator("workspace")
    @classmethod
    def _workspace_is_claim(cls, value: str) -> str:
        if value:
            Workspace.parse(value)
        return value

    @field_validator("resume")
    @classmethod
    def _resume_is_known(cls, value: str) -> str:
        return validate_resume(value)

    @field_validator("logs", mode="before")
    @classmethod
    def _logs_are_known(cls, value: Any) -> str:
        LogSelector.parse(str(value))
        return str(value)

    @field_validator("topology")
    @classmethod
    def _topology_is_known(cls, value: str) -> str:
        if value:
            Topology.parse(value)
        return value

    @field_validator("image")
    @classmethod
    def _image_is_one_word(cls, value: str) -> str:
        if value and not _IMAGE.fullmatch(value):
            raise ValueError(f"{value!r} is not the name of an image")
        return value

    @field_validator("model_shape")
    @classmethod
    def _shape_is_one(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value:
            ModelShape.model_validate(value)
        return value

    @field_validator("dataset_digest", "model_digest")
    @classmethod
    def _digest_is_one(cls, value: str) -> str:
        if value:
            prepared_folder("dataset", value)
        return value

    @field_validator("dataset_uri", "model_uri")
    @classmethod
    def _is_uri(cls, value: str) -> str:
        value = with_scheme(value)
        if value and not re.match(r"^[A-Za-z][A-Za-z0-9+.-]*://.+$", value):
            raise ValueError(f"{value!r} is not a URI such as hf://org/name or file:///path")
        if value.startswith(SCHEME) and (problem := uri_problem(value)):
            raise ValueError(problem)
        if value.startswith("pvc://") and Workspace.parse(value, "pvc").new is not None:
            raise ValueError(f"{value!r}: a new claim contains nothing")
        return value

    @field_validator("metadata_loc")
    @classmethod
    def _metadata_loc_is_a_location(cls, value: str) -> str:
        if value and (problem := location_problem(value)):
            raise ValueError(problem)
        return value

    @field_validator("worker_mem")
    @classmethod
    def _worker_mem_is_a_quantity(cls, value: str) -> str:
        if value and (problem := quantity_problem(value)):
            raise ValueError(problem)
        return value

    @model_validator(mode="after")
    def _has_all_of_a_cache(self) -> TrainRequest:
        if self.dataset_uri.startswith(SCHEME):
            if not self.metadata_loc and "METADATA_LOC" not in self.dataset_env:
                raise ValueError(
                    f"metadata_loc: required for {self.dataset_uri}: metadata.json of an Iceberg table, or files of Parquet or CSV"
                )
        elif self.manifest is None and (given := [name for name in _CACHE_SETTINGS if getattr(self, name)]):
            raise ValueError(f"{given[0]}: requires a cached table, dataset_uri=cache://SCHEMA/TABLE")
        return self

    @model_validator(mode="after")
    def _can_be_scheduled(self) -> TrainRequest:
        queue = self.labels.get(QUEUE_LABEL, "")
        if self.queue_name and queue and queue != self.queue_name:
            raise ValueError(f"queue_name: {self.queue_name!r} differs from the label {QUEUE_LABEL}={queue}")
        problems = scheduling_problems(
            queue=self.queue_name or queue,
            priority_class=self.priority_class,
            topology=self.placement,
            tolerations=self.tolerations,
            affinity=self.affinity,
        )
        if message := "; ".join((*problems, *volume_problems(self.volumes, self.volume_mounts))):
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _has_one_program(self) -> TrainRequest:
        ways = [name for name in ("func", "code", "manifest", "builtin") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"{ways[1]}: {' and '.join(ways)} are mutually exclusive; use only one of them")
        manifest_settings = [name for name in _manifest_settings() if name not in _ALLOWED_WITH_MANIFEST and getattr(self, name)]
        if self.manifest is not None and (
            conflicting := [name for name in manifest_settings if name not in ("manifest", "runtime_kind")]
        ):
            raise ValueError(f"{conflicting[0]}: cannot be combined with manifest; set it in the manifest")
        if self.func is not None and (self.command or self.args):
            raise ValueError("command: cannot be combined with func; pass its arguments with func_args")
        if self.func is None and self.func_args:
            raise ValueError("func_args: requires func")
        if self.func is not None and not self.func_args:
            try:
                check_names(signature_of(self.func), ())
            except ValueError as error:
                raise ValueError(f"func_args: {error}") from None
        if self.func is None and not self.code and (unused := [name for name in _FUNCTION_SETTINGS if getattr(self, name)]):
            raise ValueError(f"{unused[0]}: requires func or code; otherwise packages must be part of the image")
        if self.code and not self.command:
            raise ValueError('command: required with code, such as ["train.py"] or ["torchrun", "train.py"]')
        if self.builtin and (conflicting := [name for name in ("command", "args") if getattr(self, name)]):
            raise ValueError(f"{conflicting[0]}: cannot be combined with the builtin trainer {self.builtin!r}; use only one")
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _fail_in_words(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Raise errors in the words of the project. It is the last validator, so that it sees the errors of all others."""
        try:
            return validate(given)
        except ValidationError as error:
            raise in_words(error) from None

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any], *, field_validation: FieldValidation = "Strict") -> TrainRequest:
        """Create a request from the parameters of a component or an operator; unknown names and None values are ignored.

        `field_validation` Ignore leaves unknown fields of a manifest to the cluster. Raises pydantic's ValidationError, LiteralSecret.
        """
        known = {name: value for name, value in parameters.items() if name in cls.model_fields and value is not None}
        return cls.model_validate(known, context={"field_validation": field_validation})

    @cached_property
    def workspace_volume(self) -> Workspace | None:
        """The workspace, parsed; None without one."""
        return Workspace.parse(self.workspace) if self.workspace else None

    @cached_property
    def placement(self) -> Topology | None:
        """The topology, parsed; None without one."""
        return Topology.parse(self.topology) if self.topology else None

    @property
    def shape(self) -> ModelShape | None:
        """The sizes of the model; None if they are not known."""
        return ModelShape.model_validate(self.model_shape) if self.model_shape else None

    @property
    def asks_for_deadline(self) -> bool:
        """Whether somebody has set a deadline of the training, here or in the manifest; else it is the default."""
        return self.run_timeout_seconds is not None or DEADLINE in (self.manifest or {}).get("spec", {})

    @property
    def run_deadline(self) -> int | None:
        """Maximum seconds of training: those that are set, else those of the manifest, else a week; None for no limit."""
        if self.run_timeout_seconds is not None:
            return self.run_timeout_seconds or None
        own = (self.manifest or {}).get("spec", {}).get(DEADLINE)
        return RUN_TIMEOUT_SECONDS if own is None else int(own)

    @property
    def secret_for_resume(self) -> str:
        """The Secret for reading exports, else the one for object stores."""
        return self.resume_secret or self.store_secret

    @property
    def namespace(self) -> str:
        """The manifest's namespace, else empty."""
        return str((self.manifest or {}).get("metadata", {}).get("namespace") or "")

    @property
    def runtime_name(self) -> str:
        """The name of the runtime, without regard to the builtin trainer's default."""
        if self.manifest is not None:
            return str((self.manifest["spec"].get("runtimeRef") or {}).get("name") or "")
        if self.runtime:
            return self.runtime
        return FUNCTION_RUNTIME if self.func is not None or self.code else DEFAULT_RUNTIME

    @property
    def kind_of_runtime(self) -> str:
        """ClusterTrainingRuntime or TrainingRuntime: the manifest's, else `runtime_kind`."""
        if self.manifest is not None:
            return str((self.manifest["spec"].get("runtimeRef") or {}).get("kind") or "ClusterTrainingRuntime")
        return self.runtime_kind

    @property
    def has_program(self) -> bool:
        """Whether the request specifies a program other than a builtin trainer."""
        return bool(self.func or self.code or self.manifest or self.command or self.args)


def _manifest_settings() -> list[str]:
    """Return the settings that a manifest contains itself."""
    of = {name: field.json_schema_extra for name, field in TrainRequest.model_fields.items()}
    settings = [name for name, extra in of.items() if isinstance(extra, dict) and extra["group"] in ("what", "data")]
    return [*settings, "dataset_secret", "model_secret"]


def _parse_for_detection(name: str, value: Any) -> Any:
    """Return the parsed setting, to search it for credentials, or the value itself if it cannot be parsed.

    None for a manifest, which is checked when it is read.
    """
    field = TrainRequest.model_fields.get(name)
    if name == "manifest" or field is None or field.annotation is str:
        return None if name == "manifest" else value
    try:
        if name == "func" and not isinstance(value, str):
            func = source_of(value)
            return func.source if func is not None else ""
        return value if name == "func" else parse_structure(value)
    except ValueError:
        return value
