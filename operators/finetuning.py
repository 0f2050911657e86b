"""The tasks of a fine-tuning, from the data to the evaluated export: for DAGs of one's own, as a group, and for the shipped ones.

The first task checks the settings of all others and sorts them; the others get theirs as its result.
"""

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

CONNECTIONS = ("conn_id", "store_conn_id", "hub_conn_id")
_OF_START = tuple(name for name in StartRunOperator.template_fields if name != "conn_id")
_REQUIRED = ("dataset_uri", "model_uri", "export_uri", "workspace")


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

    def of(self, task_id: str, key: str, *, as_json: bool = False) -> str:
        """Return the template of one entry of a task's result; with `as_json` of an object, as JSON."""
        return f"{{{{ ti.xcom_pull('{self._prefix}{task_id}')['{key}']{' | tojson' if as_json else ''} }}}}"

    def of_run(self, name: str) -> str:
        """Return the template of a setting of the run as a whole; empty if nobody has given it."""
        return f"{{{{ ti.xcom_pull('{self._prefix}start-run').get('{name}', '') }}}}"

    def run(self) -> str:
        """Return the template of the run, as the first task has returned it, as JSON."""
        return f"{{{{ ti.xcom_pull('{self._prefix}start-run') | tojson }}}}"


def finetune(group_id: str = "finetune", **given: Any) -> Chain:
    """Create the tasks of a fine-tuning in a task group of the current DAG, in their order.

    Args:
        group_id: The group; its tasks are `GROUP.start-run`, `.initialize-dataset`, `.initialize-model`, `.train`,
            `.export-checkpoint` and `.evaluate`.
        given: `dataset_uri`, `model_uri`, `export_uri` and `workspace`; the other parameters of StartRunOperator, among them
            `training`, `data` and `evaluation`, which take any setting of those tasks by its name; `conn_id`, `store_conn_id` and
            `hub_conn_id`. What else there is, as `retries`, is for all tasks.

    Returns the tasks: `chain.start` and `chain.evaluation` are the first and the last one. Raises TypeError without one of the four.
    """
    missing = [name for name in _REQUIRED if not given.get(name)]
    if missing:
        raise TypeError(f"finetune: {', '.join(missing)} must be set")
    known = {*_REQUIRED, *CONNECTIONS, *_OF_START}
    form = {name: given.pop(name) for name in [*given] if name in known}
    with TaskGroup(group_id) as group:
        chain = training_chain(form, every=given, results=Results(str(group.group_id)))
        chain.in_order()
    return chain


def of_run(form: Mapping[str, Any], every: Mapping[str, Any], results: Results) -> dict[str, Any]:
    """Return what all tasks after the first one have in common."""
    return {"run": results.run(), **connections(form), **every}


def connections(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connections of a task; that of the hub may also be a setting of the run."""
    return {name: form[name] for name in CONNECTIONS if form.get(name)}


def training_chain(
    form: Mapping[str, Any],
    *,
    every: Mapping[str, Any] | None = None,
    results: Results | None = None,
    train: Callable[..., Any] = TrainJobOperator,
    trained: str = "train",
    trial_index: str | int = -1,
) -> Chain:
    """Create the tasks in the current DAG, without dependencies. `form` has values or templates by name, as for `finetune`.

    `every` are arguments of all tasks, `results` say where their results are. `train` creates the task of the training from the
    arguments of TrainJobOperator. `trained` is the task whose result names the TrainJob to export, and `trial_index` the trial of a
    sweep that this is.
    """
    every, results = every or {}, results or Results()
    common = of_run(form, every, results)
    uris = {name: form[name] for name in ("dataset_uri", "model_uri", "export_uri")}
    return Chain(
        StartRunOperator(
            task_id="start-run",
            **{name: form[name] for name in (*_OF_START, "conn_id") if name in form},
            **every,
        ),
        InitializeDatasetOperator(
            task_id="initialize-dataset", dataset_uri=uris["dataset_uri"], model_uri=uris["model_uri"], **common
        ),
        InitializeModelOperator(task_id="initialize-model", model_uri=uris["model_uri"], **common),
        train(
            task_id="train",
            dataset_digest=results.of("initialize-dataset", "digest"),
            model_digest=results.of("initialize-model", "digest"),
            data={"model_shape": results.of("initialize-model", "shape", as_json=True)},
            **uris,
            **common,
        ),
        ExportCheckpointOperator(
            task_id="export-checkpoint",
            export_uri=uris["export_uri"],
            trainjob=results.of(trained, "trainjob"),
            **({name: results.of(trained, name) for name in ("folder", "usage")} if trained == "train" else {}),
            trial_index=trial_index,
            **common,
        ),
        EvaluateOperator(
            task_id="evaluate",
            checkpoint_uri=results.of("export-checkpoint", "uri"),
            checkpoint_digest=results.of("export-checkpoint", "digest"),
            trial_index=trial_index,
            **common,
        ),
    )
