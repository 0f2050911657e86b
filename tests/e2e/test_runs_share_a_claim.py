"""Whole runs of the pipeline and of the DAG on one claim: at the same time, one after the other, again, and from another request.

The claim is one that the first step creates. The runs differ in data (also without held-out rows), model and settings.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster_under_test import embedded
from support.rounds import IS_LONG
from support.scripted_image import use_scripted_programs

from trainwright.api.kinds import CLAIM, TRAINJOB
from trainwright.checkpoints.merged.merged_export import merged_folder
from trainwright.checkpoints.restore import verify_export
from trainwright.cluster import connect
from trainwright.quickstart.airflow_dag import configure
from trainwright.storage.uri import StorageUri

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SETTINGS = {"batch_size": 2, "max_length": 64, "lora_rank": 4, "logging_steps": 2, "save_steps": 5, "cpu": True, "steps": 5}


class Claim:
    """One embedded cluster and a claim that does not exist yet, with two datasets and two models beside it."""

    def __init__(self, folder: Path, kubeconfig: Path, orchestrator: str, model: Path):
        self.folder, self.kubeconfig, self.orchestrator = folder, kubeconfig, orchestrator
        self.workspace = folder / "home/node/claims/default/shared"
        questions = [{"prompt": f"How many are {n} and {n}?", "completion": f" {2 * n}."} for n in range(40)]
        self.questions = self._rows("questions", questions)
        self.texts = self._rows("texts", [{"text": f"The pier has number {n}."} for n in range(3)])
        self.model = model
        self.other_model = Path(shutil.copytree(model, folder / "other-model"))
        (self.other_model / "generation_config.json").write_text('{"max_new_tokens": 5}', "utf-8")

    def start(self, run: str, number: int, settings: dict[str, Any] = SETTINGS, **parameters: Any) -> subprocess.Popen[str]:
        """A whole run in a process of its own; `number` tells tries apart."""
        training = {
            "run_id": run,
            "workspace_path": str(self.workspace),
            "num_proc_per_node": 1,
            "settings": settings,
            "env": {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        }
        given = {
            "dataset_uri": str(StorageUri.from_path(self.questions)),
            "model_uri": str(StorageUri.from_path(self.model)),
            "export_uri": str(StorageUri.from_path(self.folder / "export")),
            "workspace": "pvc://shared?size=1Gi",
            "num_nodes": 1,
            "training": training,
            **parameters,
        }
        place = self.folder / f"{self.orchestrator}-{run or 'unnamed'}-{number}"
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "TRAINWRIGHT_HOME": str(self.folder / "home")}
        if self.orchestrator == "kfp":
            values = self.folder / f"{place.name}.json"
            values.write_text(json.dumps(given), "utf-8")
            command = ["trainwright.cli", "pipeline", "run", "finetune", "--local", "--params", str(values)]
        else:
            command = ["trainwright.quickstart.airflow_dag", "finetune", json.dumps(given)]
            env |= configure(place)
        place.mkdir(exist_ok=True)
        with open(self.folder / f"{place.name}.log", "w", encoding="utf-8") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", *command], stdout=log, stderr=subprocess.STDOUT, text=True, env=env, cwd=place
            )

    def finished(self, process: subprocess.Popen[str], run: str, number: int) -> str:
        """What it printed; it must have succeeded."""
        status = process.wait(400)
        printed = self.printed(run, number)
        assert status == 0, printed[-6000:]
        return printed

    def printed(self, run: str, number: int) -> str:
        return (self.folder / f"{self.orchestrator}-{run or 'unnamed'}-{number}.log").read_text("utf-8")

    def manifest(self, run: str, step: int) -> Any:
        """That of the run's export, whose every file is verified."""
        return verify_export(str(StorageUri.from_path(self.folder / f"export/{run}/checkpoint-{step}")))

    def jobs(self, run: str) -> list[dict[str, Any]]:
        return connect(self.kubeconfig).list(TRAINJOB, "default", label_selector=f"trainwright.dev/run={run}").items

    def _rows(self, name: str, rows: list[dict[str, str]]) -> Path:
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        return path


@pytest.fixture(params=["kfp", "airflow"] if IS_LONG else ["kfp"])
def claim(request: pytest.FixtureRequest, tmp_path: Path, tiny_model: Path) -> Iterator[Claim]:
    use_scripted_programs(tmp_path / "home", tmp_path / "programs")
    with embedded(tmp_path, node=True) as kubeconfig:
        yield Claim(tmp_path, kubeconfig, request.param, tiny_model)


def test_runs_on_one_claim_never_mix(claim: Claim) -> None:
    other_data = {
        "dataset_uri": str(StorageUri.from_path(claim.texts)),
        "data": {"test_fraction": 0.0},
        "settings": {**SETTINGS, "steps": 7, "seed": 1, "save_steps": 7},
    }
    together = [claim.start("first", 1), claim.start("second", 1, **other_data), claim.start("", 1)]
    for process, run in zip(together, ("first", "second", ""), strict=True):
        claim.finished(process, run, 1)
    assert connect(claim.kubeconfig).get(CLAIM, "shared", "default")
    folders = {path.name: path for path in (claim.workspace / "runs").iterdir() if not path.name.startswith(".")}
    (unnamed,) = (folders[name] for name in folders.keys() - {"first", "second"})
    assert (unnamed / "output/checkpoint-5").is_dir(), "a run without a name gets one"
    (summary,) = unnamed.glob("evaluation/*/summary.md")
    assert "held-out loss" in summary.read_text("utf-8")
    first, second = claim.manifest("first", 5), claim.manifest("second", 7)
    assert (first.source.split("/")[0], second.source.split("/")[0]) == ("first", "second")
    assert first.metadata["origin"]["dataset"] != second.metadata["origin"]["dataset"]
    assert first.metadata["origin"]["model"] == second.metadata["origin"]["model"]
    files = {path: path.read_bytes() for path in (claim.workspace / "runs/first/output").rglob("*") if path.is_file()}

    other_model = claim.start(
        "third", 1, model_uri=str(StorageUri.from_path(claim.other_model)), evaluation={"merge_adapter": True}
    )
    assert "resuming from" not in claim.finished(other_model, "third", 1)
    third = claim.manifest("third", 5)
    assert third.metadata["origin"]["dataset"] == first.metadata["origin"]["dataset"]
    assert third.metadata["origin"]["model"] != first.metadata["origin"]["model"]
    merged = claim.manifest(merged_folder("x/third").removeprefix("x/"), 5)
    assert merged.metadata["merged"] == {"adapter": third.digest, "base_model": third.metadata["origin"]["model"]}
    # Pods say their times in whole seconds: a scripted training may have used none.
    assert ("Used 0.0" in claim.printed("third", 1)) == (third.metadata.get("usage", {}).get("node_hours", 0) > 0)
    assert {path: path.read_bytes() for path in files} == files

    # Other runs of the orchestrator with the same id train again, each in an empty folder.
    for number, settings in ((2, SETTINGS), (3, {**SETTINGS, "steps": 6})):
        printed = claim.finished(claim.start("first", number, settings=settings), "first", number)
        assert "resuming from" not in printed
        steps = [job["metadata"]["labels"]["trainwright.dev/step"] for job in claim.jobs("first")]
        assert len([step for step in steps if "evaluate" not in step]) == number
        assert {path: path.read_bytes() for path in files} == files
    assert claim.manifest("first", 5) == first
