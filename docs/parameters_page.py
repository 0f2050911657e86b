"""Generates docs/reference/parameters.md from `TrainRequest` (`make docs`). A test checks that the page is up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from trainwright.jobs.request.train_request import groups

PAGE = Path(__file__).with_name("reference") / "parameters.md"
TITLES = {
    "what": "What runs",
    "data": "Data",
    "workspace": "Workspace",
    "placement": "Placement",
    "deadlines": "Deadlines",
    "logs": "Logs",
    "resume": "Resuming",
    "cancellation": "Cancellation",
    "secrets": "Secrets",
}
BEGINNING = """\
# Parameters of a training step

The component `train`, `TrainJobOperator`, `trainwright submit` and `trainwright.jobs.TrainRequest` have the same parameters. So do the
pipeline `finetune` and the DAGs, which set the workspace folder, digests and run id of each run themselves. `make docs` generates this
page from `TrainRequest`.

Optional numbers are 0 where a parameter requires a value (KFP). Objects and lists may be given as JSON text (Airflow templates, the
command line). On the command line, underscores become dashes; objects are given as repeated `KEY=VALUE` or as JSON, lists of words as
one string or as JSON. Exceptions there: `-f` for `manifest`, `--logs` to show logs and `--logs-of` for `logs`, and `--on-cancel`
defaults to `keep`.

The program is specified in one of three ways: a runtime with overrides (`image`, `command`, `args`, or a builtin trainer's
`settings`); `func` or `code`; or a complete `manifest`, which can only be combined with labels, annotations, patches, workspace,
placement, deadlines, logs, resuming and cancellation.

## Run

| parameter | type | meaning |
|---|---|---|
| `run_id` | text | Id of the run; reusing it adopts or resumes its job. Airflow: defaults to DAG/RUN_ID of the DAG run. |
| `namespace` | text | Namespace of the TrainJob. Empty: the manifest's, else that of the credentials. |
| `submission_mode` | text | `auto`, `trainjob` or `jobset`, see [submission](../submission.md). |
"""
_NAMES = {"str": "text", "int": "number", "bool": "true or false", "dict": "object", "list": "list"}


def page() -> str:
    """The content of the page."""
    parts = [BEGINNING]
    for group, fields in groups().items():
        rows = [
            f"| `{name}` | {_type(name, field)} | {_default(field)} | {_escaped(field.description)} |"
            for name, field in fields.items()
        ]
        parts.append(
            "\n".join([f"## {TITLES[group]}\n", "| parameter | type | default | meaning |", "|---|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)


def _row(name: str, field: Any) -> str:
    return f"| `{name}` | {_type(name, field)} | {_default(field)} | {_escaped(field.description)} |"


def _type(name: str, field: Any) -> str:
    if name == "func":
        return "function"
    if name == "manifest":
        return "object, text or path"
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(field.annotation))
    text = str(field.annotation)
    if "_seconds" in name:
        return "seconds"
    return next((word for kind, word in _NAMES.items() if kind in text.partition("|")[0].partition("[")[0]), "number")


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return f"`{value}`" if value not in (None, "", {}, []) else ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
