"""The request of a training step: one definition for the KFP component, the Airflow operator and the command line.

Its settings have the same name, type, unit and path everywhere. What most trainings leave alone is in groups, see `groups`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, Self

from trainwright.api.names import CACHE_SCHEME, QUEUE_LABEL
from trainwright.jobs.code.function_arguments import check_names, checked_arguments, signature_of
from trainwright.jobs.code.function_source import NamedSource, source_of
from trainwright.jobs.credentials.secret_detection import reject_literals
from trainwright.jobs.request.groups import Data, Ending, Limits, Logging, Placement, Secrets
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import Check, Form, Settings, setting, settings_of
from trainwright.jobs.request.setting_types import (
    GROUP,
    Arguments,
    Env,
    ImageName,
    Labels,
    Manifest,
    Nodes,
    Number,
    Object,
    PreparedDigest,
    Resources,
    RuntimeName,
    SourceUri,
    Texts,
)
from trainwright.jobs.request.setting_values import Variables, parse_as, parse_structure
from trainwright.jobs.request.workspace import AUTO, Workspace, validate_resume
from trainwright.jobs.state.deadline_timer import DEADLINE, RUN_TIMEOUT_SECONDS

DEFAULT_RUNTIME, FUNCTION_RUNTIME = "trl-sft", "torch-distributed"
"""The default runtime, and the default for a function or code."""
_ALLOWED_WITH_MANIFEST = frozenset({"manifest", "labels", "workspace", "resume", "export_uri"})
_OF_MANIFEST = {"placement": ("runtime_kind",), "data": None, "secrets": ("dataset_secret", "model_secret")}
"""Settings of groups that a manifest contains itself; None for all."""
_CACHE_SETTINGS = ("metadata_loc", "num_data_nodes", "worker_mem")
_FUNCTION_SETTINGS = ("packages_to_install", "pip_index_urls")


class Source(NamedTuple):
    """Where a dataset or a model comes from: its URI, the digest of what was prepared, and variables and Secret of its initializer."""

    uri: str
    digest: str
    env: Variables
    secret: str


@dataclass(frozen=True, kw_only=True)
class TrainRequest(Settings):
    """One training step. Empty values keep those of the runtime.

    Credentials must be references: a literal that looks like a credential raises LiteralSecret.
    """

    runtime: RuntimeName = setting(
        "Training runtime. Defaults to the builtin trainer's runtime, torch-distributed for a function or code, else trl-sft.",
        "",
        section="What runs",
        example="torch-distributed",
    )
    builtin: str = setting(
        "Builtin trainer: sft, dpo, kto or torchtune. Defaults to that of the runtime, such as sft, if no other program is set.",
        "",
        section="What runs",
        example="dpo",
    )
    settings: Object = setting(
        "Settings of the builtin trainer, see docs/settings.md.",
        {},
        section="What runs",
        example='{"learning_rate": 1e-4}',
        place="inside",
    )
    image: ImageName = setting(
        "Image of the job's main container.",
        "",
        section="What runs",
        example="registry.example.com/trainer:1.4",
    )
    command: Texts = setting(
        "Command of that container; with code, it runs in the code's folder.",
        [],
        section="What runs",
        example='["torchrun", "train.py"]',
    )
    args: Texts = setting("Arguments of the command.", [], section="What runs")
    env: Env = setting(
        'Environment variables: strings, or {"valueFrom": {"secretKeyRef": {"name": ..., "key": ...}}}. Literal credentials are '
        "rejected.",
        {},
        section="What runs",
        example='{"WANDB_PROJECT": "support"}',
        place="inside",
    )
    func: Annotated[NamedSource | None, Form("function", source_of, is_parsed=True)] = setting(
        "Training function. Its source is sent, as in the Kubeflow SDK; nothing is pickled.", None, section="What runs"
    )
    func_args: Arguments = setting("Keyword arguments of the function, as JSON.", {}, section="What runs")
    packages_to_install: Texts = setting(
        "Python packages for a function or code, installed on every node.", [], section="What runs", example='["einops==0.8.0"]'
    )
    pip_index_urls: Texts = setting(
        "Package indexes for these packages: the first replaces PyPI, the others are additional.", [], section="What runs"
    )
    code: str = setting(
        "Folder, or git+https://HOST/PATH@REVISION[#subdirectory=FOLDER], that is packed and unpacked on every node.",
        "",
        section="What runs",
        example="git+https://github.com/org/repo@v1.2#subdirectory=training",
        place="here",
    )
    manifest: Manifest = setting(
        "Complete TrainJob, as an object, YAML text, or the path of a YAML file.", None, section="What runs", place="here"
    )
    num_nodes: Nodes = setting("Number of training nodes. Empty or 0: the runtime's.", None, section="What runs", example="2")
    num_proc_per_node: Number = setting(
        "Number of processes per node. Empty or 0: one per GPU, else one per CPU.", None, section="What runs"
    )
    resources_per_node: Resources = setting(
        'Resources per node: {"nvidia.com/gpu": "1"} for both limits and requests, or {"limits": ..., "requests": ...}.',
        {},
        section="What runs",
        example='{"nvidia.com/gpu": 1, "memory": "32Gi"}',
    )
    labels: Labels = setting("Labels of the TrainJob.", {}, section="What runs", example='{"team": "support"}')
    dataset_uri: SourceUri = setting(
        "Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path; see docs/sources.md. cache://SCHEMA/TABLE reads a "
        "table from a data cache; see docs/data-cache.md.",
        "",
        section="Data",
        example="s3://data/support.jsonl",
        place="uri",
    )
    dataset_digest: PreparedDigest = setting("Digest of the prepared dataset; nodes reject any other.", "", section="Data")
    model_uri: SourceUri = setting(
        "Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.",
        "",
        section="Data",
        example="hf://Qwen/Qwen3-0.6B",
        place="uri",
    )
    model_digest: PreparedDigest = setting("Digest of the prepared model; nodes reject any other.", "", section="Data")
    workspace: Annotated[Workspace | None, Form("text", partial(parse_as, Workspace), is_parsed=True)] = setting(
        "Volume that the steps of a run share: pvc://CLAIM[/FOLDER], or with ?size=20Gi[&class=&access=&retain=] to create it. "
        "The run's folder on it is mounted at /workspace.",
        None,
        section="Workspace",
        example="pvc://training?size=50Gi",
        place="uri",
    )
    resume: Annotated[str, Check(validate_resume)] = setting(
        "Where a new job starts: auto (the run's last checkpoint, if the request has not changed), last (also if it has), never, the "
        "URI of an exported checkpoint, or weights:URI (the run's last checkpoint, else the weights of that export at step 0).",
        AUTO,
        section="Resuming",
        example="weights:s3://models/support/run-7/step-900",
        place="uri",
    )
    export_uri: str = setting(
        "Where the run exports checkpoints; resume=auto starts from there if the workspace has no checkpoint.",
        "",
        section="Resuming",
        example="s3://models/support",
        place="uri",
    )
    placement: Annotated[Placement, GROUP] = setting(
        "Where the pods run: queue, topology, nodes, volumes, annotations, patches.",
        Placement(),
        section="Groups",
        example='{"queue_name": "gpus", "node_selector": {"gpu": "h100"}}',
        place="inside",
    )
    limits: Annotated[Limits, GROUP] = setting(
        "When a job has failed, and how often it may begin again: deadlines, stuck and diverged jobs, restarts, budgets.",
        Limits(),
        section="Groups",
        example='{"run_timeout_seconds": 86400}',
    )
    ending: Annotated[Ending, GROUP] = setting(
        "What happens to jobs at a cancellation, without a waiting step, and when the step is repeated.",
        Ending(),
        section="Groups",
        example='{"on_cancel": "delete"}',
    )
    logging: Annotated[Logging, GROUP] = setting(
        "Which logs of the job are shown.", Logging(), section="Groups", example='{"logs": "all"}'
    )
    secrets: Annotated[Secrets, GROUP] = setting(
        "Names of Secrets whose keys pods get as variables.",
        Secrets(),
        section="Groups",
        example='{"store_secret": "s3-credentials"}',
    )
    data: Annotated[Data, GROUP] = setting(
        "What the initializers of dataset and model must know, and the data cache.",
        Data(),
        section="Groups",
        example='{"metadata_loc": "s3://lake/orders/metadata/00004.metadata.json"}',
        place="inside",
    )

    @classmethod
    def before(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Reject credentials before any other error message can contain one. Raises LiteralSecret."""
        reject_credentials(cls, values)
        return values

    def checked(self) -> Self:
        """As of the base class; arguments of a function get the types that it declares."""
        whole = super().checked()
        if whole.func is None or not whole.func_args:
            return whole
        try:
            arguments = checked_arguments(whole.func, whole.func_args)
        except ValueError as error:
            raise InvalidSettings([("func_args", str(error).removeprefix("func_args: "))]) from None
        return whole.having(func_args=arguments)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the settings together, each beginning with the path of one of them."""
        yield from self._problems_of_cache()
        yield from self._problems_of_scheduling()
        yield from self._problems_of_program()

    def _problems_of_cache(self) -> Iterator[str]:
        if self.dataset_uri.startswith(CACHE_SCHEME):
            if not self.data.metadata_loc and "METADATA_LOC" not in self.data.dataset_env:
                files = "metadata.json of an Iceberg table, or files of Parquet or CSV"
                yield f"data.metadata_loc: required for {self.dataset_uri}: {files}"
        elif self.manifest is None and (given := [name for name in _CACHE_SETTINGS if getattr(self.data, name)]):
            yield f"data.{given[0]}: requires a cached table, dataset_uri=cache://SCHEMA/TABLE"

    def _problems_of_scheduling(self) -> Iterator[str]:
        queue, label = self.placement.queue_name, self.labels.get(QUEUE_LABEL, "")
        if queue and label and label != queue:
            yield f"placement.queue_name: {queue!r} differs from the label {QUEUE_LABEL}={label}"
        for problem in (*self.placement.scheduling_problems(label), *self.placement.problems()):
            yield f"placement.{problem}"

    def _problems_of_program(self) -> Iterator[str]:
        ways = [name for name in ("func", "code", "manifest", "builtin") if getattr(self, name)]
        if len(ways) > 1:  # what follows assumes one
            yield f"{ways[1]}: {' and '.join(ways)} are mutually exclusive; use only one of them"
            return
        if self.manifest is not None and (conflicting := next(self._in_manifest(), "")):
            yield f"{conflicting}: cannot be combined with manifest; set it in the manifest"
            return
        if self.func is not None and (self.command or self.args):
            yield "command: cannot be combined with func; pass its arguments with func_args"
        if self.func is None and self.func_args:
            yield "func_args: requires func"
        if self.func is not None and not self.func_args:
            try:
                check_names(signature_of(self.func), ())
            except ValueError as error:
                yield f"func_args: {error}"
        if self.func is None and not self.code and (unused := [name for name in _FUNCTION_SETTINGS if getattr(self, name)]):
            yield f"{unused[0]}: requires func or code; otherwise packages must be part of the image"
        if self.code and not self.command:
            yield 'command: required with code, such as ["train.py"] or ["torchrun", "train.py"]'
        if self.builtin and (conflicting := next((name for name in ("command", "args") if getattr(self, name)), "")):
            yield f"{conflicting}: cannot be combined with the builtin trainer {self.builtin!r}; use only one"

    def _in_manifest(self) -> Iterator[str]:
        """Yield the settings that were given and that a manifest contains itself."""
        for name, one in settings_of(type(self)).items():
            value = getattr(self, name)
            if one.of is None:
                if name not in _ALLOWED_WITH_MANIFEST and value != one.default:
                    yield name
            elif name in _OF_MANIFEST:
                contained = _OF_MANIFEST[name] or tuple(settings_of(one.of))
                yield from (f"{name}.{each}" for each in contained if getattr(value, each) != settings_of(one.of)[each].default)

    def source(self, kind: Literal["dataset", "model"]) -> Source:
        """Return where the dataset or the model comes from."""
        if kind == "dataset":
            return Source(self.dataset_uri, self.dataset_digest, self.data.dataset_env, self.secrets.dataset_secret)
        return Source(self.model_uri, self.model_digest, self.data.model_env, self.secrets.model_secret)

    @property
    def asks_for_deadline(self) -> bool:
        """Whether somebody has set a deadline of the training, here or in the manifest; else it is the default."""
        return self.limits.run_timeout_seconds is not None or DEADLINE in (self.manifest or {}).get("spec", {})

    @property
    def run_deadline(self) -> int | None:
        """Maximum seconds of training: those that are set, else those of the manifest, else a week; None for no limit."""
        if self.limits.run_timeout_seconds is not None:
            return self.limits.run_timeout_seconds or None
        own = (self.manifest or {}).get("spec", {}).get(DEADLINE)
        return RUN_TIMEOUT_SECONDS if own is None else int(own)

    @property
    def secret_for_resume(self) -> str:
        """The Secret for reading exports, else the one for object stores."""
        return self.secrets.resume_secret or self.secrets.store_secret

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
        """ClusterTrainingRuntime or TrainingRuntime: the manifest's, else `placement.runtime_kind`."""
        if self.manifest is not None:
            return str((self.manifest["spec"].get("runtimeRef") or {}).get("kind") or "ClusterTrainingRuntime")
        return self.placement.runtime_kind

    @property
    def has_program(self) -> bool:
        """Whether the request specifies a program other than a builtin trainer."""
        return bool(self.func or self.code or self.manifest or self.command or self.args)


def reject_credentials(cls: type[Settings], values: Mapping[str, Any]) -> None:
    """Search values for credentials, parsed as far as they can be; a manifest is searched when it is read. Raises LiteralSecret."""
    reject_literals(dict(_searched(cls, values)))


def _searched(cls: type[Settings], values: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    known = settings_of(cls)
    for key, value in values.items():
        name = str(key)
        one = known.get(name)
        if one is None or one.kind == "text":
            yield within + name, value
        elif one.kind == "function":
            yield within + name, _source_text(value)
        elif one.of is not None:
            group = value.given_values() if isinstance(value, Settings) else _parsed(value)
            yield from _searched(one.of, group, f"{name}.") if isinstance(group, dict) else [(name, group)]
        elif one.kind != "manifest":
            yield within + name, _parsed(value)


def _source_text(func: Any) -> Any:
    if isinstance(func, str):
        return func
    try:
        found = source_of(func)
    except ValueError:  # said when the setting is read; the object itself may have a credential
        return func
    return found.source if found is not None else ""


def _parsed(value: Any) -> Any:
    try:
        return parse_structure(value)
    except ValueError:  # said when the setting is read; the text itself may have a credential
        return value
