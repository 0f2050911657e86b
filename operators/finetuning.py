"""The tasks of a fine-tuning, from the data to the evaluated export: for DAGs of one's own, as a group, and for the shipped ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import TaskGroup

from trainwright.operators.evaluate import EvaluateOperator
from trainwright.operators.export_checkpoint import ExportCheckpointOperator
from trainwright.operators.initialize_dataset import InitializeDatasetOperator
from trainwright.operators.initialize_model import InitializeModelOperator
from trainwright.operators.start_run import StartRunOperator
from trainwright.operators.train_job import TrainJobOperator
from trainwright.operators.values.settings import EVALUATION_SETTINGS, SETTINGS

UNSET: Any = object()
"""What the setting of a chain returns for the operator's own default."""
_ON_CLUSTER = ("namespace", "conn_id")
_ON_WORKSPACE = ("runs_on", "job", "store_conn_id", "hub_conn_id", *_ON_CLUSTER)
_DATASET = ("dataset_uri", "layout", "test_fraction", "max_rows", "columns", "subset", "split")
_RENAMED = {
    "runtime": "evaluation_runtime",
    "image": "evaluation_image",
    "resources_per_node": "evaluation_resources",
    "max_rows": "max_evaluation_rows",
    "tasks": "evaluation_tasks",
}
"""Parameters of the evaluation whose settings have other names, since the training or the data have such a setting as well."""
_EVALUATION = ("sample_row", "retention", "few_shot", "task_limit", *_RENAMED, *EVALUATION_SETTINGS)
_OF_TASKS = ("workspace", "dataset_digest", "model_digest", "dataset_uri", "model_uri", "export_uri")
"""Settings of the training that results of other tasks, or the chain itself, supply."""


@dataclass(frozen=True)
class Chain:
    """The six tasks."""

    start: StartRunOperator
    dataset: InitializeDatasetOperator
    model: InitializeModelOperator
    training: Any
    """A TrainJobOperator, or a mapped TrainTrialOperator."""
    export: ExportCheckpointOperator
    evaluation: EvaluateOperator

    def in_order(self) -> None:
        """Set the dependencies of the tasks."""
        self.start >> [self.dataset, self.model] >> self.training >> self.export >> self.evaluation


class Results:
    """Templates of the results of tasks, in a group if `group_id` is set."""

    def __init__(self, group_id: str = ""):
        self._prefix = f"{group_id}." if group_id else ""

    def of(self, task_id: str, key: str) -> str:
        """Return the template of one entry of a task's result."""
        return f"{{{{ ti.xcom_pull('{self._prefix}{task_id}')['{key}'] }}}}"


def finetune(group_id: str = "finetune", **settings: Any) -> Chain:
    """Create the tasks of a fine-tuning in a task group of the current DAG, in their order.

    Args:
        group_id: The group; its tasks are `GROUP.start-run`, `.initialize-dataset`, `.initialize-model`, `.train`,
            `.export-checkpoint` and `.evaluate`.
        settings: `dataset_uri`, `model_uri`, `export_uri` and `workspace`, and any parameter of these operators by its name. Those of
            the evaluation are `evaluation_runtime`, `evaluation_image`, `evaluation_resources`, `evaluation_tasks` and
            `max_evaluation_rows`, where the training or the data have one of that name. `retries` and the like are of all tasks.

    Returns the tasks: `chain.start` and `chain.evaluation` are the first and the last one. Raises TypeError without one of the four.
    """
    missing = [name for name in ("dataset_uri", "model_uri", "export_uri", "workspace") if not settings.get(name)]
    if missing:
        raise TypeError(f"finetune: {', '.join(missing)} must be set")
    own = {name: settings.pop(name) for name in [*settings] if name not in _known()}
    with TaskGroup(group_id) as group:
        chain = training_chain(lambda name: settings.get(name, UNSET), every=own, results=Results(str(group.group_id)))
        chain.in_order()
    return chain


def on_workspace(setting: Callable[[str], Any], every: Mapping[str, Any], results: Results) -> dict[str, Any]:
    """Return what all tasks on the workspace of the run have in common."""
    started = {name: results.of("start-run", name) for name in ("run_id", "workspace")}
    return {**started, "workspace_path": results.of("start-run", "path"), **_given(setting, _ON_WORKSPACE), **every}


def training_chain(
    setting: Callable[[str], Any],
    *,
    every: Mapping[str, Any] | None = None,
    results: Results | None = None,
    train: Callable[..., Any] = TrainJobOperator,
    trained: str = "train",
    trial_index: str | int = -1,
) -> Chain:
    """Create the tasks in the current DAG, without dependencies. `setting` returns a setting, or UNSET.

    `every` are arguments of all tasks, `results` say where their results are. `train` creates the task of the training from the
    arguments of TrainJobOperator. `trained` is the task whose result names the TrainJob to export, and `trial_index` the trial of a
    sweep that this is.
    """
    every, results = every or {}, results or Results()
    files, cluster = on_workspace(setting, every, results), _given(setting, _ON_CLUSTER)
    training = _given(setting, [name for name in SETTINGS if name not in _OF_TASKS])
    evaluation = {name: setting(_RENAMED.get(name, name)) for name in _EVALUATION}
    exported = {f"checkpoint_{name}": results.of("export-checkpoint", name) for name in ("uri", "digest")}
    return Chain(
        StartRunOperator(
            task_id="start-run",
            **_given(setting, ("workspace", "workspace_path", "num_nodes", "run_id")),
            **cluster,
            **every,
        ),
        InitializeDatasetOperator(task_id="initialize-dataset", **_given(setting, _DATASET), **files),
        InitializeModelOperator(task_id="initialize-model", **_given(setting, ("model_uri",)), **files),
        train(
            task_id="train",
            workspace=results.of("start-run", "workspace"),
            run_id=results.of("start-run", "run_id"),
            dataset_digest=results.of("initialize-dataset", "digest"),
            model_digest=results.of("initialize-model", "digest"),
            **_given(setting, ("dataset_uri", "model_uri", "export_uri", "store_conn_id", "hub_conn_id")),
            **training,
            **cluster,
            **every,
        ),
        ExportCheckpointOperator(
            task_id="export-checkpoint",
            trainjob=results.of(trained, "trainjob"),
            trial_index=trial_index,
            **_given(setting, ("export_uri", "resumable")),
            **files,
        ),
        EvaluateOperator(
            task_id="evaluate",
            trial_index=trial_index,
            **exported,
            **{name: value for name, value in evaluation.items() if value is not UNSET},
            **files,
        ),
    )


def _given(setting: Callable[[str], Any], names: Any) -> dict[str, Any]:
    values = {name: setting(name) for name in names}
    return {name: value for name, value in values.items() if value is not UNSET}


def _known() -> set[str]:
    own = ("workspace_path", "num_nodes", "run_id", "resumable", *_ON_WORKSPACE, *_DATASET)
    return {*own, *_OF_TASKS, *SETTINGS, *(_RENAMED.get(name, name) for name in _EVALUATION)}
