"""`make retrain-demo`: the DAG of the weekly retraining, three times in a row - new, unchanged, with new rows.

Each demo is a folder of runs of its own, with an Airflow of its own that knows of no earlier good run.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from trainwright.controlplane.lifecycle import StartFailed
from trainwright.quickstart.airflow_run import Reader, last_words, run_dag
from trainwright.quickstart.own_cluster import OwnCluster, own_cluster
from trainwright.quickstart.shipped import DATA, QUICKSTART_SETTINGS, base_model
from trainwright.quickstart.steps_view import StepsView
from trainwright.storage.uri import StorageUri

STEPS = 150
"""Enough to see the loss fall; the demo is about what happens around the training."""
NEW_ROWS = 96
INTERRUPTED = 130
ACTS = {"first": "trained", "unchanged": "skipped", "new-rows": "trained"}
"""The three runs, and what each must come to."""


def main() -> int:
    """Exit status 0 when the three outcomes are those that the demo is about, 1, or 130 (interrupted)."""
    parser = argparse.ArgumentParser(prog="make retrain-demo", description="Show the weekly retraining three times in a row.")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder that runs are kept in")
    parser.add_argument("--settings", default="{}", help="training settings as JSON, over those of the demo")
    parser.add_argument("--preset", default="quickstart", help="size of the shipped model: quickstart or tiny")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    console, runs = Console(), arguments.runs.absolute()
    settings = {**json.loads(QUICKSTART_SETTINGS), "steps": STEPS, **json.loads(arguments.settings)}
    began = time.monotonic()
    try:
        with own_cluster(runs, console) as cluster:
            folder = new_folder(runs)
            try:
                acts = list(_acts(cluster, folder, settings, arguments.preset, console))
            except KeyboardInterrupt:
                console.print("\nStopped.")
                for act in ACTS:
                    cluster.suspend_all(f"{folder.name}-{act}")
                return INTERRUPTED
    except StartFailed as error:
        console.print(f"[red]{error}[/red]", highlight=False)
        return 1
    show(acts, console)
    console.print(f"[dim]{time.monotonic() - began:.1f} s in all[/dim]", highlight=False)
    return 0 if [act["outcome"] for act in acts] == list(ACTS.values()) else 1


def new_folder(runs: Path) -> Path:
    """`./runs/retrain-001`, or the next number that is free."""
    number = 1
    while True:
        folder = runs / f"retrain-{number:03d}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def _acts(cluster: OwnCluster, folder: Path, settings: dict[str, Any], preset: str, console: Console) -> Iterator[dict[str, Any]]:
    """Run the DAG for each act in turn; gives what came of it, and ends early with an act that failed."""
    console.print(f"[bold]Retraining[/bold] in {folder}", highlight=False)
    model = base_model(folder.parent / ".models", preset, console)
    cluster.ready()
    workspace, dataset = folder / "workspace", folder / "dataset" / DATA.name
    workspace.mkdir()
    dataset.parent.mkdir()
    cluster.make_claim(folder.name, workspace)
    rows = DATA.read_text("utf-8").splitlines(keepends=True)
    for act in ACTS:
        dataset.write_text("".join(rows if act == "new-rows" else rows[:-NEW_ROWS]), "utf-8")
        parameters = {
            "run_id": f"{folder.name}-{act}",
            "dataset_uri": str(StorageUri.of_path(dataset)),
            "model_uri": str(StorageUri.of_path(model)),
            "export_uri": str(StorageUri.of_path(folder / "export")),
            "workspace": folder.name,
            "workspace_path": str(workspace),
            "settings": settings,
            "num_nodes": 2,
            "num_proc_per_node": 1,
            "env": {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        }
        console.print(f"[bold]{act}[/bold]")
        outcome = _run(folder, act, parameters)
        yield outcome
        if outcome["outcome"] == "failed":
            console.print(last_words(folder / f"{act}.log"), markup=False, highlight=False, soft_wrap=True)
            return


def _run(folder: Path, act: str, parameters: dict[str, Any]) -> dict[str, Any]:
    report = folder / f"{act}.json"
    with StepsView(folder / f"{act}.log", Reader()) as view:
        succeeded = run_dag(view, folder / ".airflow", "scheduled_retraining", parameters, report)
    seen = json.loads(report.read_bytes()) if report.exists() else {"tasks": {}, "events": [], "reason": ""}
    trained = seen["tasks"].get("train") == "success"
    return {**seen, "act": act, "outcome": "failed" if not succeeded else "trained" if trained else "skipped"}


def show(acts: list[dict[str, Any]], console: Console) -> None:
    """One row for each run: its outcome, and what it announced or why it was skipped."""
    table = Table(title="Three runs of the DAG trainwright_retraining", title_justify="left")
    for column in ("run", "outcome", "held-out loss", "asset event, or the reason for none"):
        table.add_column(column, overflow="fold")
    for act in acts:
        event = act["events"][0] if act["events"] else None
        loss = f"{event['loss_before']:.3f} -> {event['loss_after']:.3f}" if event else ""
        told = f"{event['checkpoint']}\ndataset {event['dataset_digest']}" if event else act["reason"]
        table.add_row(act["act"], act["outcome"], loss, told)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
