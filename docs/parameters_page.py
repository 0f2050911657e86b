"""The text of docs/reference/parameters.md, from the table of settings; `make edges` writes it."""

from __future__ import annotations

from pathlib import Path

from trainwright.jobs.request.setting import Setting
from trainwright.jobs.request.settings_table import TABLE

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

The component `train`, `TrainJobOperator`, `trainwright submit` and `trainwright.jobs.TrainRequest` have the same parameters. The
pipelines and DAGs take them by name in `training`, but for the workspace, digests and URIs, which they set. `make edges`
writes this page from `TrainRequest`.

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
    """The content of the page."""
    parts = [BEGINNING]
    for group, title in TITLES.items():
        rows = [_row(setting) for setting in TABLE.values() if setting.group == group]
        parts.append("\n".join([f"## {title}\n", "| parameter | type | default | meaning |", "|---|---|---|---|", *rows, ""]))
    return "\n".join(parts)


def _row(setting: Setting) -> str:
    kind = " or ".join(f"`{choice}`" for choice in setting.choices) or _KINDS[setting.kind]
    default = f"`{setting.default}`" if setting.default not in (None, "", {}, []) else ""
    example = f" Example: `{setting.example}`" if setting.example else ""
    return f"| `{setting.name}` | {kind} | {default} | {(setting.description + example).replace('|', chr(92) + '|')} |"
