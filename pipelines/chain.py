"""The steps that the pipelines share, created from the tables of `trainwright.steps.chain`.

The first step checks the settings of all others and sorts them; the others get theirs as its output `run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfp import dsl

from trainwright.components import start_run
from trainwright.jobs.request.setting import names_of
from trainwright.steps.chain import FINETUNING, START, Table, inputs_of
from trainwright.steps.requests import StartRun


class Chain:
    """The tasks of a pipeline, by the names of their steps in a table. Creating it adds the first one, with `given`."""

    def __init__(self, form: Mapping[str, Any], table: Table = FINETUNING, **given: Any):
        self._form, self._table = form, table
        fields = {name: form[name] for name in sorted(names_of(StartRun)) if name in form}
        self.start = start_run(pipeline_run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER, **fields, **given)
        self._tasks = {START: self.start}

    def add(self, component: Any, step: str = "", **given: Any) -> Any:
        """Add the task of a step, which is named as its component unless `step` is set. `given` replaces inputs of the table."""
        row = self._table[step or component.name]
        inputs = inputs_of(row.of_pipeline, self._form, lambda earlier, output: self._tasks[earlier].outputs[output])
        task = component(run=self.start.outputs["run"], **{**inputs, **given})
        self._tasks[step or component.name] = task
        return task.after(self._tasks[row.after]) if row.after else task
