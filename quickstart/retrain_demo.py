"""`make retrain-demo`: runs the DAG of the weekly retraining three times in a row: with new, unchanged and extended data.

The last run starts from the weights of the model that the first one has promoted, and is compared with it.

Each demo has its own runs folder and its own Airflow, which has no earlier successful runs.
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

from trainwright.embedded.lifecycle import StartFailed
from trainwright.quickstart.bundled import DATA, QUICKSTART_SETTINGS, base_model
from trainwright.quickstart.local_cluster import LocalCluster, local_cluster
from trainwright.quickstart.orchestrators import run_dag
from trainwright.quickstart.terminal import StepsView
from trainwright.storage.uri import StorageUri

STEPS = 150
"""Enough to see the loss decrease; the demo shows the orchestration, not the training."""
NEW_ROWS = 96
INTERRUPTED = 130
SCENARIOS = {"first": "trained", "unchanged": "skipped", "new-rows": "trained"}
"""The three runs and their expected outcomes."""


def main() -> int:
    """Exit status 0 if the three outcomes are as expected, else 1, or 130 (interrupted)."""
    parser = argparse.ArgumentParser(prog="make retrain-demo", description="Show the weekly retraining three times in a row.")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("--settings", default="{}", help="training settings as JSON, merged into those of the demo")
    parser.add_argument("--preset", default="quickstart", help="size of the bundled model: quickstart or tiny")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    console, runs = Console(), arguments.runs.absolute()
    settings = {**json.loads(QUICKSTART_SETTINGS), "steps": STEPS, **json.loads(arguments.settings)}
    began = time.monotonic()
    try:
        with local_cluster(runs, console) as cluster:
            folder = new_folder(runs)
            try:
                results = list(_run_scenarios(cluster, folder, settings, arguments.preset, console))
            except KeyboardInterrupt:
                console.print("\nStopped.")
                for scenario in SCENARIOS:
                    cluster.suspend_all(f"{folder.name}-{scenario}")
                return INTERRUPTED
    except StartFailed as error:
        console.print(str(error), style="red", markup=False, highlight=False)
        return 1
    show(results, console)
    console.print(f"[dim]{time.monotonic() - began:.1f} s in all[/dim]", highlight=False)
    return 0 if [result["outcome"] for result in results] == list(SCENARIOS.values()) else 1


def new_folder(runs: Path) -> Path:
    """Create `./runs/retrain-001`, or the next free number."""
    number = 1
    while True:
        folder = runs / f"retrain-{number:03d}"
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def _run_scenarios(
    cluster: LocalCluster, folder: Path, settings: dict[str, Any], preset: str, console: Console
) -> Iterator[dict[str, Any]]:
    """Run the DAG for each scenario in turn and yield its report; stops after a failed one."""
    console.print(f"[bold]Retraining[/bold] in {folder}", highlight=False)
    model = base_model(folder.parent / ".models", preset, console)
    cluster.ready()
    workspace, dataset = folder / "workspace", folder / "dataset" / DATA.name
    workspace.mkdir()
    dataset.parent.mkdir()
    cluster.create_claim(folder.name, workspace)
    rows = DATA.read_text("utf-8").splitlines(keepends=True)
    for scenario in SCENARIOS:
        dataset.write_text("".join(rows if scenario == "new-rows" else rows[:-NEW_ROWS]), "utf-8")
        parameters = {
            "dataset_uri": str(StorageUri.from_path(dataset)),
            "model_uri": str(StorageUri.from_path(model)),
            "export_uri": str(StorageUri.from_path(folder / "export")),
            "workspace": folder.name,
            "warm_start": scenario == "new-rows",
            "num_nodes": 2,
            "training": {
                "run_id": f"{folder.name}-{scenario}",
                "workspace_path": str(workspace),
                "settings": settings,
                "num_proc_per_node": 1,
                "env": {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            },
        }
        console.print(f"[bold]{scenario}[/bold]")
        result, failure_log = _run(folder, scenario, parameters)
        yield result
        if result["outcome"] == "failed":
            console.print(failure_log, markup=False, highlight=False, soft_wrap=True)
            return


def _run(folder: Path, scenario: str, parameters: dict[str, Any]) -> tuple[dict[str, Any], str]:
    report = folder / f"{scenario}.json"
    with StepsView(folder / f"{scenario}.log") as view:
        succeeded = run_dag(view, folder / ".airflow", "scheduled_retraining", parameters, report)
    seen: dict[str, Any] = json.loads(report.read_bytes()) if report.exists() else {"tasks": {}, "events": [], "reason": ""}
    trained = seen["tasks"].get("train") == "success"
    outcome = "failed" if not succeeded else "trained" if trained else "skipped"
    return {**seen, "scenario": scenario, "outcome": outcome}, view.failure_log


def show(results: list[dict[str, Any]], console: Console) -> None:
    """Print one row per run: its outcome, and its asset event or the reason for skipping."""
    table = Table(title="Three runs of the DAG trainwright_retraining", title_justify="left")
    for column in ("run", "outcome", "held-out loss", "asset event, or reason for skipping"):
        table.add_column(column, overflow="fold")
    for result in results:
        event = result["events"][0] if result["events"] else None
        loss = f"{event['loss_before']:.3f} -> {event['loss_after']:.3f}" if event else ""
        detail = f"{event['checkpoint']}\ndataset {event['dataset_digest']}" if event else result["reason"]
        table.add_row(result["scenario"], result["outcome"], loss, detail)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
