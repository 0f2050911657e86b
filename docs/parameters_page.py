"""The text of docs/reference/parameters.md, from the definitions of the settings; `make edges` writes it."""

from __future__ import annotations

from pathlib import Path

from trainwright.jobs.request.setting import Setting, settings_of
from trainwright.jobs.request.train_request import TrainRequest

PAGE = Path(__file__).with_name("reference") / "parameters.md"
BEGINNING = """\
# Parameters of a training step

The component `train`, `TrainJobOperator`, `@task.trainjob`, `trainwright submit` and `trainwright.jobs.TrainRequest` have the same
parameters. `make edges` writes this page from the definitions of the settings.

## Groups

Settings that most trainings leave alone are in six groups. A group is one parameter, an object:

GROUPS

```python
# Kubeflow Pipelines
train(run_id=run_id, command=["train.py"], code="src", limits={"run_timeout_seconds": 86400}, placement={"queue_name": "gpus"})

# Airflow
TrainJobOperator(
    task_id="train",
    command=["train.py"],
    code="src",
    limits=Limits(run_timeout_seconds=86400),
    placement=Placement(queue_name="gpus"),
)
```

```console
$ trainwright submit --command train.py --code src --run-timeout-seconds 86400 --queue-name gpus --wait
```

* **The command line** has no groups: each setting is an option of its name. `submit` has none for `preemption_budget`,
  `job_retries`, `waiter_lease_seconds` and `tie_to_run`, which are for steps.
* **Pipelines, DAGs and `trainwright finetune`** take groups as objects in `training`: `{"limits": {"run_timeout_seconds": 86400}}`,
  or `--training limits.run_timeout_seconds=86400`.
* **The steps around the training.** `evaluate` and `EvaluateOperator` have the same groups without `data`, and `harness`
  (`few_shot`, `task_limit`) for their `tasks`. `wait_train_job` and `TrainJobSensor` take those about waiting, and refuse others.
  Operators that can be deferred have `deferral` (`log_poll_interval`, `min_defer_seconds`).
* **With `run`**, the settings of the run and those of the step are joined, one by one also in groups. One that both have with
  different values is an error; an object such as `env` counts as one value. A parameter of the step that is its default, as
  `num_nodes=0`, says nothing: the run's value holds.
* **Errors** begin with the path: `limits.restarts: ...`. An unknown name is refused; for a setting of a group, the error has its
  path. The settings of a group at a call of a `@train_function` are joined with those of its decorator.

In Kubeflow Pipelines, a parameter of the pipeline or an output of a task can be an entry of a group, and keeps its type. Two rules:

* A list or an object that only the run knows is refused inside a group when the pipeline is compiled, since kfp cannot carry it
  there; a text is warned of, because its value may have quotes.
* Give such a group as a whole: as one parameter of the pipeline (`placement: dict`), or one output of a task.

In Airflow, `trainwright.operators` has a type for each group, whose names an editor completes. `Limits(run_timeout_seconds=86400)`
is a plain dict, and `limits={"run_timeout_seconds": 86400}` the same:

* Templates and results of other tasks are rendered at any depth, and so is a group that is one template or result itself.
* `limits.job_retries` and `ending.tie_to_run` are for Kubeflow Pipelines, and refused; use `retries` of the task.
* Names, choices and literal credentials are checked when the DAG is parsed, also in `partial` and `expand`; other values when the task
  runs, before it submits a job.
* A group in `default_args` or `.override(...)` is an argument like any other: a task that sets the group has its settings alone. Share
  some with `limits={**COMMON, "restarts": 1}`.
* `partial` and `expand` take groups: `.partial(limits=Limits(restarts=2)).expand(placement=[on_a100, on_h100])`.

## How values are written

Optional numbers are 0 where a parameter requires a value (KFP). Objects, lists and groups may be given as JSON text (Airflow
templates, the command line). On the command line, underscores become dashes; objects are given as repeated `KEY=VALUE` or as JSON,
lists of words as one string or as JSON. Exceptions there: `-f` for `manifest`, `--logs` to show logs and `--logs-of` for `logs`, and
`--on-cancel` defaults to `keep`.

The pipelines and DAGs set the workspace, digests and URIs themselves. All other settings of this page go by name into their
`training`.

The program is specified in one of three ways: a runtime with overrides (`image`, `command`, `args`, or a builtin trainer's
`settings`); `func` or `code`; or a complete `manifest`, which can only be combined with labels, workspace, resume, export_uri,
placement (without `runtime_kind`), limits, ending, logging and secrets (without those of initializers).

## Run

| parameter | type | meaning |
|---|---|---|
| `run_id` | text | Id of the run; reusing it adopts or resumes its job. Airflow: defaults to DAG/RUN_ID of the DAG run. |
| `namespace` | text | Namespace of the TrainJob. Empty: the manifest's, else that of the credentials. |
| `run` | object | The run, as `start_run` or StartRunOperator returns it, instead of `run_id`, `workspace` and `namespace`. |
"""
_KINDS = {
    "text": "text",
    "integer": "number",
    "number": "number",
    "seconds": "seconds",
    "flag": "true or false",
    "object": "object",
    "list": "list",
    "function": "function",
    "manifest": "object, text or path",
}


def page() -> str:
    """The content of the page: a table for each section of the flat parameters, and for each group."""
    settings = settings_of(TrainRequest).values()
    groups = [f"| [`{one.name}`](#{one.name}) | {one.description} |" for one in settings if one.of is not None]
    parts = [BEGINNING.replace("GROUPS", "\n".join(["| group | settings |", "|---|---|", *groups]))]
    for title in dict.fromkeys(setting.section for setting in settings if setting.of is None):
        parts.append(_table(f"## {title}", [setting for setting in settings if setting.section == title]))
    for group in settings:
        if group.of is not None:
            parts.append(_table(f"## `{group.name}`\n\n{group.description}", list(settings_of(group.of).values())))
    return "\n".join(parts)


def _table(heading: str, settings: list[Setting]) -> str:
    return "\n".join([f"{heading}\n", "| parameter | type | default | meaning |", "|---|---|---|---|", *map(_row, settings), ""])


def _row(setting: Setting) -> str:
    kind = " or ".join(f"`{choice}`" for choice in setting.choices) or _KINDS[setting.kind]
    default = f"`{setting.default}`" if setting.default not in (None, "", {}, []) else ""
    example = f" Example: `{setting.example}`" if setting.example else ""
    return f"| `{setting.name}` | {kind} | {default} | {(setting.description + example).replace('|', chr(92) + '|')} |"
