"""Links to the tools that a training has reported to: addresses to open, or commands to copy. What they show is not rebuilt here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote, urlsplit

from trainwright.api.objects import Obj
from trainwright.text.foreign_texts import one_line, without_user
from trainwright.tracking.targets import sqlite_address
from trainwright.ui.models.history import event_files
from trainwright.ui.models.job_variables import variables_of
from trainwright.workspace.layout import OUTPUT

_MAX_URL, _MAX_LINKS = 2_000, 20
_WANDB = "https://wandb.ai"


class ToolLink(TypedDict):
    """`url` is an http(s) address, or empty; `command` starts the tool on local files, or is empty."""

    tool: str
    title: str
    url: str
    command: str


def links_in(folder: Path) -> list[ToolLink]:
    """Return how to open what trackers have written to a run's folder, or to that of a step below it."""
    found: list[ToolLink] = []
    for place in (folder / "tensorboard", folder / OUTPUT):
        if not place.is_symlink() and place.is_dir() and event_files(place):
            found.append(_link("TensorBoard", place.name, command=f"tensorboard --logdir {shlex.quote(str(place))}"))
    database = folder / "mlflow.db"
    if not database.is_symlink() and database.is_file():
        command = f"mlflow ui --backend-store-uri {shlex.quote(sqlite_address(folder))}"
        found.append(_link("MLflow", database.name, command=command))
    offline = folder / "wandb"
    if not offline.is_symlink() and offline.is_dir():
        found.append(_link("W&B", "offline runs", command=f"wandb sync {shlex.quote(str(offline))}/offline-run-*"))
    return found


def links_of(trainjob: Obj) -> list[ToolLink]:
    """Return the addresses that a job's environment names for its trackers. Only http and https, and no credentials. Pure."""
    variables = _variables(trainjob)
    found: list[ToolLink] = []
    if server := safe_url(variables.get("MLFLOW_TRACKING_URI", "")):
        run, experiment = variables.get("MLFLOW_RUN_ID", ""), variables.get("MLFLOW_EXPERIMENT_ID", "")
        path = f"/#/experiments/{quote(experiment, safe='')}" if experiment else ""
        path = f"{path}/runs/{quote(run, safe='')}" if path and run else path
        found.append(
            _link("MLflow", variables.get("MLFLOW_EXPERIMENT_NAME", "") or "tracking server", url=f"{server.rstrip('/')}{path}")
        )
    entity, project = variables.get("WANDB_ENTITY", ""), variables.get("WANDB_PROJECT", "")
    if entity and project and (server := safe_url(variables.get("WANDB_BASE_URL", "") or _WANDB)):
        run = variables.get("WANDB_RUN_ID", "")
        path = "/".join(quote(part, safe="") for part in (entity, project, *(("runs", run) if run else ())))
        found.append(_link("W&B", f"{entity}/{project}", url=f"{server.rstrip('/')}/{path}"))
    return found[:_MAX_LINKS]


def safe_url(text: str) -> str:
    """Return an http(s) address without user name, password and query; "" for anything else. Pure."""
    if len(text) > _MAX_URL or one_line(text) != text or not text.isprintable() or " " in text or "\\" in text:
        return ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not host:
        return ""
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}{f':{port}' if port else ''}{quote(parts.path, safe='/%:@-._~')}"


def _variables(trainjob: Obj) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in variables_of(trainjob):
        if name.startswith(("MLFLOW_", "WANDB_")):
            found.setdefault(name, value)
    return found


def _link(tool: str, title: str, *, url: str = "", command: str = "") -> ToolLink:
    return ToolLink(tool=tool, title=without_user(one_line(title))[:200], url=url, command=command)
