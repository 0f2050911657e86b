"""The tasks of a fine-tuning, from the data to the evaluated export: for DAGs of one's own, as a group, and for the shipped ones.

The first task checks the settings of all others and sorts them; the others get theirs as its result. Their other inputs are those of a
table of `trainwright.steps.chain`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import TaskGroup

from trainwright.operators.evaluate import EvaluateOperator
from trainwright.operators.export_checkpoint import ExportCheckpointOperator
from trainwright.operators.initialize_dataset import InitializeDatasetOperator
from trainwright.operators.initialize_model import InitializeModelOperator
from trainwright.operators.start_run import StartRunOperator
from trainwright.operators.train_job import TrainJobOperator
from trainwright.steps.chain import FINETUNING, START, Table, inputs_of, predecessors

CONNECTIONS = ("conn_id", "store_conn_id", "hub_conn_id")
OPERATORS: dict[str, Any] = {
    "initialize-dataset": InitializeDatasetOperator,
    "initialize-model": InitializeModelOperator,
    "train": TrainJobOperator,
    "export-checkpoint": ExportCheckpointOperator,
    "evaluate": EvaluateOperator,
}
"""The operators of the steps from the data to the evaluation."""
_OBJECTS = ("shape", "usage", "evaluation")
"""Outputs whose templates are JSON, as a text would be Python's."""
_OF_START = tuple(name for name in StartRunOperator.template_fields if name != "conn_id")
_REQUIRED = ("dataset_uri", "model_uri", "export_uri", "workspace")


class Chain:
    """Creates the tasks of a fine-tuning in the current DAG, by the names of their steps in a table, and begins with the first one.

    `form` has values or templates by name, as for `finetune`; `every` are arguments of all tasks. In a task group, `group_id` is its.
    """

    def __init__(
        self, form: Mapping[str, Any], table: Table = FINETUNING, *, every: Mapping[str, Any] | None = None, group_id: str = ""
    ):
        self.form, self._table, self._every = form, table, every or {}
        self._prefix = f"{group_id}." if group_id else ""
        self.run = f"{{{{ ti.xcom_pull('{self._prefix}{START}') | tojson }}}}"
        """The template of the run."""
        given = {name: form[name] for name in (*_OF_START, "conn_id") if name in form}
        self.tasks: dict[str, Any] = {START: StartRunOperator(task_id=START, **given, **self._every)}
        """The tasks by the names of their steps; that of the training may be a mapped one."""

    def output_of(self, step: str, output: str) -> str:
        """Return the template of an output of a step; empty for a setting of the run that nobody has given."""
        entry = f".get('{output}', '')" if step == START else f"['{output}']{' | tojson' if output in _OBJECTS else ''}"
        return f"{{{{ ti.xcom_pull('{self._prefix}{step}'){entry} }}}}"

    def arguments(self, step: str) -> dict[str, Any]:
        """Return the arguments of the operator of a step: its inputs, and those that all tasks after the first one have in common."""
        inputs = inputs_of(self._table[step].of_values, self.form, self.output_of)
        return {**inputs, "run": self.run, **connections(self.form), **self._every}

    def add(self, step: str, operator: Any = None, *, gate: Any = None, **given: Any) -> Any:
        """Create the task of a step after those that it follows in the table.

        Args:
            step: Name of the step, which is the default of `task_id`.
            operator: Creates the task from its arguments; by default the operator of OPERATORS.
            gate: Output of a task between this one and those before it, which may skip this one.
            given: Further arguments, and others than those of the table.
        """
        task = (operator or OPERATORS[step])(**{"task_id": step, **self.arguments(step), **given})
        first = task if gate is None else gate.operator
        if gate is not None:
            first >> task
        for earlier in predecessors(self._table, step):
            if self.tasks[earlier].task_id not in first.upstream_task_ids:  # Airflow warns of a second one
                self.tasks[earlier] >> first
        self.tasks[step] = task
        return task

    def add_steps(self) -> None:
        """Create the tasks from the data to the evaluation."""
        for step in OPERATORS:
            self.add(step)


def finetune(group_id: str = "finetune", **given: Any) -> Chain:
    """Create the tasks of a fine-tuning in a task group of the current DAG, in their order.

    Args:
        group_id: The group; its tasks are `GROUP.start-run`, `.initialize-dataset`, `.initialize-model`, `.train`,
            `.export-checkpoint` and `.evaluate`.
        given: `dataset_uri`, `model_uri`, `export_uri` and `workspace`; the other parameters of StartRunOperator, among them
            `training`, `data` and `evaluation`, which take any setting of those tasks by its name; `conn_id`, `store_conn_id` and
            `hub_conn_id`. What else there is, as `retries`, is for all tasks.

    Returns the chain, whose `tasks` have `start-run` first and `evaluate` last. Raises TypeError without one of the four.
    """
    missing = [name for name in _REQUIRED if not given.get(name)]
    if missing:
        raise TypeError(f"finetune: {', '.join(missing)} must be set")
    known = {*_REQUIRED, *CONNECTIONS, *_OF_START}
    form = {name: given.pop(name) for name in [*given] if name in known}
    with TaskGroup(group_id) as group:
        chain = Chain(form, every=given, group_id=str(group.group_id))
        chain.add_steps()
    return chain


def connections(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connections of a task; that of the hub may also be a setting of the run."""
    return {name: form[name] for name in CONNECTIONS if form.get(name)}
