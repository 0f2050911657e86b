"""Writes what the edges say of the settings of a step from the request models (`make edges`), so that nobody types it twice.

Signatures and docstrings of components and operators are written into their files: kfp reads source text, and editors, type checkers
and `inspect` shall see real parameters. In a signature the settings stand between two comments, in a docstring they are found by name.
A test checks that everything is up to date.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from parameters_page import PAGE, page
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainwright.jobs.request.more_settings import COMPONENT_DEFAULTS
from trainwright.jobs.request.setting import Kind, Place, Setting
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.steps import requests

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "trainwright" / "jobs" / "request" / "settings_table.py"
STEP_TABLES = ROOT / "trainwright" / "steps" / "parameter_tables.py"
STEPS = (
    requests.InitializeDataset,
    requests.InitializeModel,
    requests.PullDvcData,
    requests.PreprocessDataset,
    requests.ExportCheckpoint,
    requests.EvaluateExport,
    requests.PromoteModel,
    requests.RegisterModel,
    requests.ReadChampion,
    requests.RollBackModel,
    requests.PlanTrials,
    requests.PickTrial,
    requests.StartRun,
    requests.FineTuning,
    requests.Retraining,
    requests.Sweep,
    requests.FullPipeline,
)
BEGIN, END = "# Written by `make edges` from {model}.", "# End of what `make edges` writes."
_WIDTH, _TEXT = 133, 90
_BEGINNING = '''"""The settings of {}. Written by `make edges` from the request models."""

from __future__ import annotations

from trainwright.jobs.request.setting import Setting

'''


def table_of(model: type[BaseModel]) -> list[Setting]:
    """The settings of a model, in its order."""
    return [_setting_of(name, field) for name, field in model.model_fields.items()]


def _setting_of(name: str, field: FieldInfo) -> Setting:
    extra = field.json_schema_extra
    assert isinstance(extra, dict), name
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    default = ... if field.is_required() else field.get_default(call_default_factory=True)
    return Setting(
        name,
        _kind_of(name, field),
        default,
        str(extra["group"]),
        str(field.description),
        choices,
        str(extra.get("unit") or ("seconds" if name.endswith("_seconds") else "")),
        str(extra.get("example") or ""),
        tuple(map(str, extra.get("used_by") or ())),  # type: ignore[arg-type]  # a list, as JSON has no tuples
        cast(Place, extra.get("place") or ""),
    )


def _kind_of(name: str, field: FieldInfo) -> Kind:
    if name in ("func", "manifest"):
        return "function" if name == "func" else "manifest"
    if name.endswith("_seconds"):
        return "seconds"
    text = str(field.annotation)
    kinds: dict[str, Kind] = {"bool": "flag", "dict": "object", "list": "list", "float": "number", "int": "integer"}
    outer = text.partition("|")[0].partition("[")[0]
    found = next((kind for word, kind in kinds.items() if re.search(rf"\b{word}\b", outer)), None)
    return found or ("integer" if re.search(r"\bint\b", text) else "text")


def table_text(model: type[BaseModel]) -> str:
    """The module with the table of a model."""
    return f"{_BEGINNING.format('a training step')}TABLE = {{row.name: row for row in (\n{_rows(model)}\n)}}\n"


def step_tables_text() -> str:
    """The module with the tables of all other steps."""
    tables = "\n".join(f"    {model.__name__!r}: (\n{_rows(model)}\n)," for model in STEPS)
    named = "{step: {row.name: row for row in rows} for step, rows in _ROWS.items()}"
    note = "The parameters of each step, by the name of its request."
    return f'{_BEGINNING.format("the other steps")}_ROWS = {{\n{tables}\n}}\nSTEP_PARAMETERS = {named}\n"""{note}"""\n'


def _rows(model: type[BaseModel]) -> str:
    return "\n".join(f"    {_row(setting)}," for setting in table_of(model))


def _row(setting: Setting) -> str:
    defaults = Setting._field_defaults
    more = {name: value for name, value in setting._asdict().items() if name not in defaults or value != defaults[name]}
    return f"Setting({', '.join(f'{name}={_literal(value)}' for name, value in more.items())})"


def _literal(value: Any) -> str:
    """The value as Python; a long text in several parts, so that no line is too long."""
    if not isinstance(value, str):
        return "..." if value is ... else repr(value)
    return " ".join(repr(value[start : start + _TEXT]) for start in range(0, len(value) or 1, _TEXT))


class Edge(NamedTuple):
    """How an edge declares and describes a setting, and passes it on in the body of the function."""

    declare: Callable[[Setting], str]
    entry: Callable[[Setting], str]
    pass_on: Callable[[Setting], str]


def _kfp_parameter(setting: Setting) -> str:
    """kfp has no None, no functions and no unions."""
    setting = setting._replace(default=COMPONENT_DEFAULTS.get(setting.name, setting.default))
    kind = {"integer": "int", "seconds": "int", "number": "float", "flag": "bool", "object": "dict", "list": "list"}.get(
        setting.kind, "str"
    )
    if setting.default is ...:
        return f"    {setting.name}: {kind},"
    empty: dict[str, Any] = {"str": "", "int": 0}
    return f"    {setting.name}: {kind} = {setting.default if setting.default is not None else empty[kind]!r},"


def _airflow_parameter(setting: Setting) -> str:
    """What Airflow renders is text until then; objects and lists have no mutable defaults."""
    kinds = {
        "integer": "int | str",
        "number": "float | str",
        "seconds": "int | str | timedelta",
        "flag": "bool | str",
        "object": "dict[str, Any] | str",
        "list": "list[Any] | str",
        "function": "Callable[..., Any] | str",
        "manifest": "dict[str, Any] | str",
    }
    kind, default = kinds.get(setting.kind, "str"), setting.default if setting.default not in ({}, []) else None
    if default is ...:
        return f"        {setting.name}: {kind},"
    return f"        {setting.name}: {kind}{' | None' if default is None else ''} = {default!r},"


def _kfp_entry(setting: Setting) -> str:
    return textwrap.fill(f"{setting.name}: {setting.description}", _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)


def _airflow_entry(setting: Setting) -> str:
    return textwrap.fill(
        f":param {setting.name}: {setting.description}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8
    )


def _pipeline_entry(setting: Setting) -> str:
    """KFP's form sorts parameters by name and knows no sections."""
    example = f" Example: {setting.example}" if setting.example else ""
    text = f"{setting.name}: {setting.group}: {setting.description}{example}"
    return textwrap.fill(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12)


KFP = Edge(_kfp_parameter, _kfp_entry, lambda setting: f'        "{setting.name}": {setting.name},')
PIPELINE = KFP._replace(entry=_pipeline_entry)
AIRFLOW = Edge(_airflow_parameter, _airflow_entry, lambda setting: f"        self.{setting.name} = {setting.name}")


class Target(NamedTuple):
    """A function in a file, and the settings that it takes."""

    file: str
    function: str
    edge: Edge
    model: type[BaseModel]
    takes: Callable[[Setting], bool] = lambda setting: True
    more: tuple[Setting, ...] = ()

    def settings(self) -> list[Setting]:
        """In their order, but those without a default first."""
        found = [*(setting for setting in table_of(self.model) if self.takes(setting)), *self.more]
        return sorted(found, key=lambda setting: setting.default is not ...)


def _of_wait(setting: Setting) -> bool:
    return setting.group in ("deadlines", "logs", "cancellation")


def _of_submission(setting: Setting) -> bool:
    """Submitting again after a failure needs the wait, too; a deadline of the training is also set on the job."""
    only_of_wait = setting.group in ("deadlines", "logs") and setting.name != "run_timeout_seconds"
    return not only_of_wait and setting.name != "preemption_budget"


def _of_evaluation(setting: Setting) -> bool:
    return "evaluate" in setting.used_by


def _of_sensor(setting: Setting) -> bool:
    return setting.group in ("deadlines", "logs")


_SECRETS = (
    Setting(
        "store_secret",
        "text",
        "trainwright-store",
        "Credentials",
        "Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for every step. It need not exist.",
    ),
    Setting(
        "hub_secret", "text", "trainwright-hub", "Credentials", "Secret with the key HF_TOKEN, for every step. It need not exist."
    ),
)
_TRACKING = Setting(
    "tracking_secret",
    "text",
    "trainwright-tracking",
    "Credentials",
    "Secret with MLFLOW_TRACKING_URI, WANDB_API_KEY ..., for the steps that track and register. It need not exist.",
)
TARGETS = (
    Target("pipelines/finetune/pipeline.py", "finetune", PIPELINE, requests.FineTuning, more=_SECRETS),
    Target("pipelines/retrain/pipeline.py", "retrain", PIPELINE, requests.Retraining, more=_SECRETS),
    Target("pipelines/sweep/pipeline.py", "sweep", PIPELINE, requests.Sweep, more=_SECRETS),
    Target("pipelines/full_pipeline/pipeline.py", "full_pipeline", PIPELINE, requests.FullPipeline, more=(*_SECRETS, _TRACKING)),
    Target("components/train/component.py", "train", KFP, TrainRequest),
    Target("components/submit_train_job/component.py", "submit_train_job", KFP, TrainRequest, _of_submission),
    Target("components/wait_train_job/component.py", "wait_train_job", KFP, TrainRequest, _of_wait),
    Target("components/evaluate/component.py", "evaluate", KFP, requests.EvaluateExport),
    Target("components/evaluate/component.py", "evaluate", KFP, TrainRequest, _of_evaluation),
    Target("operators/train_job.py", "TrainJobOperator.__init__", AIRFLOW, TrainRequest),
    Target("operators/evaluate.py", "EvaluateOperator.__init__", AIRFLOW, requests.EvaluateExport),
    Target("operators/evaluate.py", "EvaluateOperator.__init__", AIRFLOW, TrainRequest, _of_evaluation),
    Target("operators/train_job_sensor.py", "TrainJobSensor.__init__", AIRFLOW, TrainRequest, _of_sensor),
    *(
        target
        for model, name, folder in (
            (requests.InitializeDataset, "initialize_dataset", ""),
            (requests.InitializeModel, "initialize_model", ""),
            (requests.PullDvcData, "pull_dvc_data", ""),
            (requests.PreprocessDataset, "preprocess_dataset", ""),
            (requests.ExportCheckpoint, "export_checkpoint", ""),
            (requests.PromoteModel, "promote_model", ""),
            (requests.RegisterModel, "register_model", ""),
            (requests.ReadChampion, "read_champion", ""),
            (requests.RollBackModel, "roll_back_model", ""),
            (requests.StartRun, "start_run", ""),
            (requests.PlanTrials, "plan_trials", "sweep/"),
            (requests.PickTrial, "pick_trial", "sweep/"),
        )
        for target in (
            Target(f"components/{name}/component.py", name, KFP, model),
            Target(f"operators/{folder}{name}.py", f"{name.title().replace('_', '')}Operator.__init__", AIRFLOW, model),
        )
    ),
)


def rewritten(text: str, target: Target) -> str:
    """The text of a file with the settings of a target: in signature, docstring and body. Raises ValueError without the comments."""
    settings, lines = target.settings(), text.split("\n")
    function, documented = _find(ast.parse(text), target.function)
    expression = documented.body[0]
    assert isinstance(expression, ast.Expr)
    first, last = expression.lineno - 1, expression.end_lineno or 0
    signature = _block(lines, function.lineno - 1, target)
    body = _block(lines, signature.stop, target)
    edits = [
        (signature, list(map(target.edge.declare, settings))),
        (slice(first, last), _described(lines[first:last], target, settings)),
        (body, list(map(target.edge.pass_on, settings))),
    ]
    for place, new in sorted(edits, key=lambda edit: edit[0].start, reverse=True):
        lines[place] = new
    return "\n".join(lines)


def _block(lines: list[str], start: int, target: Target) -> slice:
    begin = _line_of(lines, start, BEGIN.format(model=target.model.__name__), target)
    return slice(begin + 1, _line_of(lines, begin, END, target))


def _find(tree: ast.Module, path: str) -> tuple[ast.FunctionDef, ast.FunctionDef | ast.ClassDef]:
    """The function, and what has the docstring: its class, if it is an initializer."""
    place, _, name = path.rpartition(".")
    body: list[ast.stmt] = tree.body
    owner = None
    if place:
        owner = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == place)
        body = owner.body
    function = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)
    return function, owner or function


def _line_of(lines: list[str], start: int, comment: str, target: Target) -> int:
    for number in range(start, len(lines)):
        if lines[number].strip() == comment:
            return number
    raise ValueError(f"{target.file}: {target.function} has no line {comment!r}")


def _described(docstring: list[str], target: Target, settings: list[Setting]) -> list[str]:
    """The lines of a docstring with the entries of the settings, where the first of them was."""
    indent = len(target.edge.entry(settings[0])) - len(target.edge.entry(settings[0]).lstrip())
    names, rest, place = {setting.name for setting in settings}, list[str](), None
    inside, is_over = False, False
    for line in docstring:
        is_over = is_over or line.strip() == "Returns:"
        found = re.match(rf" {{{indent}}}(?::param )?(\w+): ", line)
        if found or len(line) - len(line.lstrip()) <= indent:
            inside = found is not None and found[1] in names and not is_over
        if not inside:
            rest.append(line)
        elif place is None:
            place = len(rest)
    if place is None:
        raise ValueError(f"{target.file}: the docstring of {target.function} has no entry for any setting; write the first one")
    return [*rest[:place], *"\n".join(map(target.edge.entry, settings)).split("\n"), *rest[place:]]


def files() -> Iterator[tuple[Path, str]]:
    """Each file that is written, and its text."""
    yield TABLE, _formatted(table_text(TrainRequest))
    yield STEP_TABLES, _formatted(step_tables_text())
    yield PAGE, page()
    texts: dict[Path, str] = {}
    for target in TARGETS:
        path = ROOT / target.file
        texts[path] = rewritten(texts.get(path) or path.read_text("utf-8"), target)
    for path, text in texts.items():
        yield path, _formatted(text)


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--config", str(ROOT / "pyproject.toml"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    for path, text in files():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT))
