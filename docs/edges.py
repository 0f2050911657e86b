"""Writes what the edges say of settings from their definitions (`make edges`), so that nobody types it twice.

Signatures and docstrings of components and operators are written into their files: kfp reads source text, and editors, type checkers
and `inspect` shall see real parameters. Blocks of lines stand between two comments, entries of a docstring are found by name.
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
from typing import Any, NamedTuple

from layers_table import PAGE as LAYERS_PAGE
from layers_table import with_layers
from parameters_page import PAGE, page

from trainwright.jobs.request import groups
from trainwright.jobs.request.setting import Setting, Settings, settings_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.steps import requests

ROOT = Path(__file__).parent.parent
BEGIN, END = "# Written by `make edges` from {model}.", "# End of what `make edges` writes."
_WIDTH = 133
_AIRFLOW_TYPES = {
    "integer": "int | str",
    "number": "float | str",
    "seconds": "int | str | timedelta",
    "flag": "bool | str",
    "object": "dict[str, Any] | str",
    "list": "list[Any] | str",
    "function": "Callable[..., Any] | str",
    "manifest": "dict[str, Any] | str",
}
_KFP_TYPES = {
    "integer": "int",
    "seconds": "int",
    "number": "float",
    "flag": "bool",
    "object": "dict",
    "list": "list",
    "group": "dict",
}
_KFP_EMPTY: dict[str, Any] = {"str": "", "int": 0, "dict": {}}
"""What stands for None: kfp has no word for it."""


class Edge(NamedTuple):
    """How an edge describes a setting, and the lines of its blocks, in their order in the file."""

    entry: Callable[[Setting], str]
    blocks: tuple[Callable[[list[Setting]], list[str]], ...]


def _each(line: Callable[[Setting], str]) -> Callable[[list[Setting]], list[str]]:
    return lambda settings: [line(setting) for setting in settings]


def _kfp_parameter(setting: Setting) -> str:
    kind = _KFP_TYPES.get(setting.kind, "str")
    if setting.default is ...:
        return f"    {setting.name}: {kind},"
    default = setting.default if setting.default is not None and setting.of is None else _KFP_EMPTY[kind]
    return f"    {setting.name}: {kind} = {default!r},"


def _airflow_parameter(setting: Setting) -> str:
    """What Airflow renders is text until then; objects and lists have no mutable defaults."""
    kind = f"{setting.of.__name__} | str" if setting.of is not None else _AIRFLOW_TYPES.get(setting.kind, "str")
    if setting.default is ...:
        return f"        {setting.name}: {kind},"
    default = _airflow_default(setting)
    return f"        {setting.name}: {kind}{' | None' if default is None else ''} = {default!r},"


def _airflow_default(setting: Setting) -> Any:
    if setting.default is None and setting.kind == "text":
        return ""
    return None if setting.of is not None or setting.default in ({}, []) else setting.default


def _group_field(setting: Setting) -> str:
    """A field of a group with its description, which editors show beside the name."""
    kind = _AIRFLOW_TYPES.get(setting.kind, "str")
    text = textwrap.fill(
        f'"""{setting.description}"""', _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    return f"    {setting.name}: {kind}\n{text}"


def _templates(settings: list[Setting]) -> list[str]:
    """A function is not text; everything else is rendered. Several names in a line, which ruff leaves so in a tuple of it."""
    names = " ".join(setting.name for setting in settings if setting.kind != "function")
    return [f"        *{tuple(line.split())!r}," for line in textwrap.wrap(names, 75)]


def _description(setting: Setting) -> str:
    inside = f" Its settings: {', '.join(settings_of(setting.of))}." if setting.of is not None else ""
    return setting.description + inside


def _kfp_entry(setting: Setting) -> str:
    return textwrap.fill(
        f"{setting.name}: {_description(setting)}",
        _WIDTH,
        initial_indent=" " * 8,
        subsequent_indent=" " * 12,
        break_on_hyphens=False,
    )


def _airflow_entry(setting: Setting) -> str:
    return textwrap.fill(
        f":param {setting.name}: {_description(setting)}",
        _WIDTH,
        initial_indent=" " * 4,
        subsequent_indent=" " * 8,
        break_on_hyphens=False,
    )


def _pipeline_entry(setting: Setting) -> str:
    """KFP's form sorts parameters by name and knows no sections."""
    example = f" Example: {setting.example}" if setting.example else ""
    text = f"{setting.name}: {setting.section}: {setting.description}{example}"
    wrapped = textwrap.wrap(text, _WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12, break_on_hyphens=False)
    return "\n".join(wrapped)


_KFP_BLOCKS = (_each(_kfp_parameter), _each(lambda setting: f'        "{setting.name}": {setting.name},'))
KFP, PIPELINE = Edge(_kfp_entry, _KFP_BLOCKS), Edge(_pipeline_entry, _KFP_BLOCKS)
AIRFLOW = Edge(
    _airflow_entry,
    (
        _templates,
        _each(_airflow_parameter),
        _each(lambda setting: f"        self.{setting.name} = {setting.name}"),
        _each(lambda setting: f'            "{setting.name}": self.{setting.name},'),
    ),
)
GROUP = Edge(lambda _setting: "", (_each(_group_field),))


class Target(NamedTuple):
    """A function in a file, and the settings that it takes."""

    file: str
    function: str
    edge: Edge
    model: type[Settings]
    takes: Callable[[Setting], bool] = lambda setting: True
    more: tuple[Setting, ...] = ()
    optional: tuple[str, ...] = ()
    """Required settings that this function can get another way."""

    def settings(self) -> list[Setting]:
        """In their order, but those without a default first, and groups last."""
        found = [*(setting for setting in settings_of(self.model).values() if self.takes(setting)), *self.more]
        found = [setting._replace(default="") if setting.name in self.optional else setting for setting in found]
        return sorted(found, key=lambda setting: (setting.default is not ..., setting.of is not None))


def _of_wait(setting: Setting) -> bool:
    return setting.name in ("limits", "ending", "logging")


def _of_sensor(setting: Setting) -> bool:
    return setting.name in ("limits", "logging")


_SECRETS = (
    Setting(
        "store_secret",
        "text",
        "trainwright-store",
        "Credentials",
        "Secret with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL ..., for all that reads stores. It need not exist.",
    ),
    Setting(
        "hub_secret",
        "text",
        "trainwright-hub",
        "Credentials",
        "Secret with the key HF_TOKEN, for all that reads the hub. It need not exist.",
    ),
)
_TRACKING = Setting(
    "tracking_secret",
    "text",
    "trainwright-tracking",
    "Credentials",
    "Secret with MLFLOW_TRACKING_URI, WANDB_API_KEY ..., for the steps that track and register. It need not exist.",
)
GROUPS = (groups.Placement, groups.Limits, groups.Ending, groups.Logging, groups.Secrets, groups.Data, requests.Harness)
TARGETS = (
    *(Target("operators/groups.py", group.__name__, GROUP, group) for group in GROUPS),
    Target("pipelines/finetune/pipeline.py", "finetune", PIPELINE, requests.FineTuning, more=_SECRETS),
    Target("pipelines/retrain/pipeline.py", "retrain", PIPELINE, requests.Retraining, more=_SECRETS),
    Target("pipelines/sweep/pipeline.py", "sweep", PIPELINE, requests.Sweep, more=_SECRETS),
    Target("pipelines/full_pipeline/pipeline.py", "full_pipeline", PIPELINE, requests.FullPipeline, more=(*_SECRETS, _TRACKING)),
    Target("components/train/component.py", "train", KFP, TrainRequest),
    Target("components/submit_train_job/component.py", "submit_train_job", KFP, TrainRequest),
    Target("components/wait_train_job/component.py", "wait_train_job", KFP, TrainRequest, _of_wait),
    Target("components/evaluate/component.py", "evaluate", KFP, requests.EvaluateExport),
    Target(
        "components/initialize_dataset/component.py",
        "initialize_dataset",
        KFP,
        requests.InitializeDataset,
        optional=("dataset_uri",),  # an artifact has it, too
    ),
    Target("operators/initialize_dataset.py", "InitializeDatasetOperator.__init__", AIRFLOW, requests.InitializeDataset),
    Target("operators/train_job.py", "TrainJobOperator.__init__", AIRFLOW, TrainRequest),
    Target("operators/evaluate.py", "EvaluateOperator.__init__", AIRFLOW, requests.EvaluateExport),
    Target("operators/train_job_sensor.py", "TrainJobSensor.__init__", AIRFLOW, TrainRequest, _of_sensor),
    *(
        target
        for model, name, folder in (
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
    """Return the text of a file with the settings of a target, in its blocks and its docstring. Raises ValueError without comments."""
    settings, lines = target.settings(), text.split("\n")
    start, end, documented = _find(ast.parse(text), target.function)
    edits: list[tuple[slice, list[str]]] = []
    if target.edge is not GROUP:
        expression = documented.body[0]
        assert isinstance(expression, ast.Expr)
        first, last = expression.lineno - 1, expression.end_lineno or 0
        edits.append((slice(first, last), _described(lines[first:last], target, settings)))
    for block in target.edge.blocks:
        place = _block(lines, start, end, target)
        edits.append((place, block(settings)))
        start = place.stop
    for place, new in sorted(edits, key=lambda edit: edit[0].start, reverse=True):
        lines[place] = new
    return "\n".join(lines)


def _block(lines: list[str], start: int, end: int, target: Target) -> slice:
    begin = _line_of(lines, start, end, BEGIN.format(model=target.model.__name__), target)
    return slice(begin + 1, _line_of(lines, begin, end, END, target))


def _find(tree: ast.Module, path: str) -> tuple[int, int, ast.FunctionDef | ast.ClassDef]:
    """The first line and the end of what is written, and what has the docstring: a function, a class, or that of an initializer."""
    owner = path.partition(".")[0]
    found = next(node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == owner)
    after = [node.lineno - 1 for node in tree.body if node.lineno > found.lineno]  # comments at its end are not part of a class
    return found.lineno - 1, min(after, default=sys.maxsize), found


def _line_of(lines: list[str], start: int, end: int, comment: str, target: Target) -> int:
    for number in range(start, min(end, len(lines))):
        if lines[number].strip() == comment:
            return number
    raise ValueError(f"{target.file}: {target.function} has no line {comment!r}, or too few of them")


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
    yield PAGE, page()
    yield LAYERS_PAGE, with_layers(LAYERS_PAGE.read_text("utf-8"), ROOT)
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
