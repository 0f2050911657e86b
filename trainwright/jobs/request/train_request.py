"""A training step as somebody asks for it: one definition for the KFP component, the Airflow operator and the command line.

Each setting has one name, type and unit everywhere, and belongs to a group; docs/reference/parameters.md is made from this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from trainwright.api.hub_names import with_scheme
from trainwright.api.names import QUEUE_LABEL
from trainwright.jobs.diagnosis.preemption import BUDGET
from trainwright.jobs.logs.live_logs import TOTAL_BYTES
from trainwright.jobs.logs.read_logs import LogSelector
from trainwright.jobs.request.function_source import NamedSource, source_of
from trainwright.jobs.request.manifest_source import checked_manifest
from trainwright.jobs.request.resume import AUTO, checked_resume
from trainwright.jobs.request.scheduling import Topology, scheduling_problems
from trainwright.jobs.request.secret_detection import refuse_literals
from trainwright.jobs.request.setting_values import amounts, optional_number, structured
from trainwright.jobs.request.variables import Variables, reference_problems
from trainwright.jobs.request.workspace import Workspace
from trainwright.jobs.state.run_folder import prepared_folder

Group = Literal["what", "data", "workspace", "placement", "deadlines", "logs", "resume", "cancellation", "secrets"]
DEFAULT_RUNTIME, FUNCTION_RUNTIME = "trl-sft", "torch-distributed"
"""What runs where nothing else is said, and what runs a function or code."""
_IMAGE = re.compile(r"[^\s]+")
_BESIDE_MANIFEST = {"labels", "annotations", "runtime_patches"}
_FOR_FUNCTIONS = ("func_args", "packages_to_install", "pip_index_urls")

Structure = dict[str, Any]
Texts = Annotated[list[str], BeforeValidator(lambda value: structured(value) or [])]
Labels = Annotated[dict[str, str], BeforeValidator(lambda value: structured(value) or {})]
Object = Annotated[Structure, BeforeValidator(lambda value: structured(value) or {})]
Objects = Annotated[list[Structure], BeforeValidator(lambda value: structured(value) or [])]
Env = Annotated[Variables, BeforeValidator(lambda value: structured(value) or {})]
Resources = Annotated[dict[str, dict[str, str]], BeforeValidator(lambda value: amounts(structured(value)) or {})]


Number = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(optional_number)]
Nodes = Annotated[Annotated[int, Field(ge=1, le=100000)] | None, BeforeValidator(optional_number)]


def _setting(group: Group, default: Any, description: str) -> Any:
    return Field(default=default, description=description, json_schema_extra={"group": group})


class TrainRequest(BaseModel):
    """One training step. Empty values leave the runtime's own in place.

    Credentials come by reference only: a literal that looks like one raises LiteralSecret.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False)

    # what runs
    runtime: Annotated[str, Field(max_length=253)] = _setting(
        "what",
        "",
        "Training runtime. Empty: that of the builtin trainer, torch-distributed for a function or code, else trl-sft.",
    )
    runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = _setting(
        "what", "ClusterTrainingRuntime", "ClusterTrainingRuntime, or TrainingRuntime for one of the job's namespace."
    )
    builtin: str = _setting(
        "what", "", "Builtin trainer: sft or torchtune. Empty: sft, where nothing else says what runs and the runtime is for it."
    )
    settings: Object = _setting("what", {}, "Settings of the builtin trainer, see docs/settings.md.")
    image: str = _setting("what", "", "Image of the training container.")
    command: Texts = _setting("what", [], "Command of the training container; with code, what is run in its folder.")
    args: Texts = _setting("what", [], "Arguments of the command.")
    env: Env = _setting(
        "what",
        {},
        'Variables of the training container: texts, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. '
        "Literal credentials are refused.",
    )
    func: Annotated[NamedSource | None, BeforeValidator(source_of)] = _setting(
        "what", None, "Training function: its source is sent, as the Kubeflow SDK does; nothing is pickled."
    )
    func_args: Object = _setting("what", {}, "Keyword arguments of the function, as JSON.")
    packages_to_install: Texts = _setting("what", [], "Python packages that a function or code needs, installed on every node.")
    pip_index_urls: Texts = _setting("what", [], "Package indexes for them: the first in place of PyPI, the others besides.")
    code: str = _setting(
        "what",
        "",
        "Folder, or git+https://HOST/PATH@REVISION[#subdirectory=FOLDER]: packed by digest and unpacked on every node.",
    )
    manifest: Annotated[Structure | None, BeforeValidator(checked_manifest)] = _setting(
        "what", None, "Whole TrainJob, as an object, as YAML text, or as the path of a YAML file."
    )
    num_nodes: Nodes = _setting("what", None, "Nodes that train together. Empty or 0: the runtime's.")
    num_proc_per_node: Number = _setting("what", None, "Processes on a node. Empty or 0: one for each GPU, else for each CPU.")
    resources_per_node: Resources = _setting(
        "what", {}, 'Resources of a node: {"nvidia.com/gpu": "1"} for limits and requests, or {"limits": ..., "requests": ...}.'
    )
    labels: Labels = _setting("what", {}, "Labels of the TrainJob.")
    annotations: Labels = _setting("what", {}, "Annotations of the TrainJob.")
    runtime_patches: Objects = _setting("what", [], "Further spec.runtimePatches, each with manager and trainingRuntimeSpec.")

    # data
    dataset_uri: str = _setting("data", "", "Dataset: hf://org/name, s3://bucket/folder or file:///path.")
    dataset_digest: str = _setting("data", "", "Digest of the prepared dataset; nodes refuse any other.")
    dataset_env: Env = _setting("data", {}, "Variables of the dataset initializer.")
    model_uri: str = _setting("data", "", "Base model: hf://org/name, s3://bucket/folder or file:///path.")
    model_digest: str = _setting("data", "", "Digest of the prepared model; nodes refuse any other.")
    model_env: Env = _setting("data", {}, "Variables of the model initializer.")

    # workspace
    workspace: str = _setting(
        "workspace",
        "",
        "Volume that the steps of a run share: pvc://CLAIM[/FOLDER], or with ?size=20Gi[&class=&access=&retain=] to create it. "
        "The run's own folder in it is mounted at /workspace.",
    )

    # placement
    queue_name: str = _setting("placement", "", "LocalQueue of Kueue: the job starts when the queue admits it.")
    priority_class: str = _setting("placement", "", "WorkloadPriorityClass of that queue.")
    topology: str = _setting(
        "placement", "", "required:KEY, preferred:KEY, unconstrained (Kueue) or exclusive:KEY (JobSet), KEY being a node label."
    )
    node_selector: Labels = _setting("placement", {}, "Labels of the nodes that may train; initializers run anywhere.")
    tolerations: Objects = _setting("placement", [], "Tolerations of the training pods, besides those of the runtime.")
    affinity: Object = _setting("placement", {}, "Node and pod affinity of the training pods.")

    # deadlines
    queue_timeout_seconds: Number = _setting("deadlines", None, "Seconds that the job may be queued or suspended. 0: no limit.")
    start_timeout_seconds: Number = _setting("deadlines", None, "Seconds until its nodes must train. 0: no limit.")
    run_timeout_seconds: Number = _setting(
        "deadlines", None, "Seconds that it may run; also its activeDeadlineSeconds, which the cluster keeps. 0: no limit."
    )

    # logs
    logs: str = _setting("logs", "0", "Whose log is shown as it grows: a rank, all, STEP:RANK, STEP:all, or none.")
    log_bytes: Annotated[int, Field(ge=0)] = _setting(
        "logs", TOTAL_BYTES, "Bytes of log that are shown; after that only the last lines, at the end."
    )

    # resume
    resume: str = _setting(
        "resume", AUTO, "Where a new job starts: auto (the run's last checkpoint), never, or the URI of an exported checkpoint."
    )
    export_uri: str = _setting("resume", "", "Where the run exports to; resume=auto starts there if its workspace has none.")
    previous_jobs: Literal["keep", "delete"] = _setting(
        "resume", "keep", "Ended earlier jobs of this step once the next one is submitted: keep or delete."
    )
    preemption_budget: Annotated[int, Field(ge=0)] = _setting(
        "resume", BUDGET, "Maximum automatic resubmissions after preemption, in the life of the step."
    )

    # cancellation
    on_cancel: Literal["suspend", "delete", "keep"] = _setting(
        "cancellation", "suspend", "The job when its step is cancelled or exceeds a deadline: suspend, delete or keep."
    )

    # secrets
    store_secret: str = _setting(
        "secrets", "", "Secret with object store credentials (AWS_ACCESS_KEY_ID ...), for datasets, models and resuming."
    )
    hub_secret: str = _setting("secrets", "", "Secret with the key HF_TOKEN, for datasets, models and the training program.")
    dataset_secret: str = _setting("secrets", "", "Secret whose keys become variables of the dataset initializer.")
    model_secret: str = _setting("secrets", "", "Secret whose keys become variables of the model initializer.")
    resume_secret: str = _setting("secrets", "", "Secret for reading exports to resume from. Empty: store_secret.")

    @model_validator(mode="before")
    @classmethod
    def _no_credentials(cls, fields: Any) -> Any:
        """Before all else: what is refused here is in no other error."""
        if isinstance(fields, dict):
            refuse_literals({name: _as_read(name, value) for name, value in fields.items()})
        return fields

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
        return checked_resume(value)

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
        return value

    @model_validator(mode="after")
    def _can_be_scheduled(self) -> TrainRequest:
        queue = self.labels.get(QUEUE_LABEL, "")
        if self.queue_name and queue and queue != self.queue_name:
            raise ValueError(f"queue_name: {self.queue_name!r}, and the label {QUEUE_LABEL} says {queue!r}")
        problems = scheduling_problems(
            queue=self.queue_name or queue,
            priority_class=self.priority_class,
            topology=self.placement,
            tolerations=self.tolerations,
            affinity=self.affinity,
        )
        if told := "; ".join(problems):
            raise ValueError(told)
        return self

    @model_validator(mode="after")
    def _says_one_thing_to_run(self) -> TrainRequest:
        ways = [name for name in ("func", "code", "manifest", "builtin") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"{ways[1]}: {' and '.join(ways)} each say what runs; give one of them")
        inside = [name for name in _what() if name not in _BESIDE_MANIFEST and getattr(self, name)]
        if self.manifest is not None and (both := [name for name in inside if name not in ("manifest", "runtime_kind")]):
            raise ValueError(f"{both[0]}: belongs into the manifest, which is given as a whole")
        if self.func is not None and (self.command or self.args):
            raise ValueError("command: a function is the program; its arguments are func_args")
        if self.func is None and self.func_args:
            raise ValueError("func_args: there is no func to take them")
        if self.func is None and not self.code and (idle := [name for name in _FOR_FUNCTIONS if getattr(self, name)]):
            raise ValueError(f"{idle[0]}: only func and code use it; an image brings its own packages")
        if self.code and not self.command:
            raise ValueError('command: code needs its entry point, such as ["train.py"] or ["torchrun", "train.py"]')
        if self.builtin and (both := [name for name in ("command", "args") if getattr(self, name)]):
            raise ValueError(f"{both[0]}: the builtin trainer {self.builtin!r} decides what runs; leave one of them out")
        return self

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> TrainRequest:
        """From the parameters of a component or an operator, of which it takes those that it knows; None is left out.

        Raises pydantic's ValidationError, LiteralSecret.
        """
        given = {name: value for name, value in parameters.items() if name in cls.model_fields and value is not None}
        return cls.model_validate(given)

    @cached_property
    def workspace_volume(self) -> Workspace | None:
        """The workspace, parsed; None without one."""
        return Workspace.parse(self.workspace) if self.workspace else None

    @cached_property
    def placement(self) -> Topology | None:
        """The topology, parsed; None without one."""
        return Topology.parse(self.topology) if self.topology else None

    @property
    def secret_for_resume(self) -> str:
        """The Secret for reading an export, else the one for object stores."""
        return self.resume_secret or self.store_secret

    @property
    def namespace(self) -> str:
        """The namespace that a manifest names, else empty."""
        return str((self.manifest or {}).get("metadata", {}).get("namespace") or "")

    @property
    def runtime_name(self) -> str:
        """The runtime that is meant, where the builtin trainer does not name its own."""
        if self.manifest is not None:
            return str((self.manifest["spec"].get("runtimeRef") or {}).get("name") or "")
        if self.runtime:
            return self.runtime
        return FUNCTION_RUNTIME if self.func is not None or self.code else DEFAULT_RUNTIME

    @property
    def kind_of_runtime(self) -> str:
        """ClusterTrainingRuntime or TrainingRuntime: what the manifest says, where there is one."""
        if self.manifest is not None:
            return str((self.manifest["spec"].get("runtimeRef") or {}).get("kind") or "ClusterTrainingRuntime")
        return self.runtime_kind

    @property
    def says_what_runs(self) -> bool:
        """Whether anything but a builtin trainer decides the program."""
        return bool(self.func or self.code or self.manifest or self.command or self.args)


def _what() -> list[str]:
    """The settings that a manifest says itself."""
    of = {name: field.json_schema_extra for name, field in TrainRequest.model_fields.items()}
    said = [name for name, extra in of.items() if isinstance(extra, dict) and extra["group"] in ("what", "data")]
    return [*said, "dataset_secret", "model_secret"]


def _as_read(name: str, value: Any) -> Any:
    """A setting as its texts are looked at; one that cannot be read is so as it is. A manifest looks for itself."""
    field = TrainRequest.model_fields.get(name)
    if name == "manifest" or field is None or field.annotation is str:
        return None if name == "manifest" else value
    try:
        if name == "func" and not isinstance(value, str):
            func = source_of(value)
            return func.source if func is not None else ""
        return value if name == "func" else structured(value)
    except ValueError:
        return value


def groups() -> dict[str, dict[str, Any]]:
    """Group to its settings, in the order of the model; a setting is its pydantic field."""
    found: dict[str, dict[str, Any]] = {}
    for name, field in TrainRequest.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        found.setdefault(str(extra["group"]), {})[name] = field
    return found
