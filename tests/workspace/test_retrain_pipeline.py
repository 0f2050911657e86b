"""The pipeline `retrain`, run again and again on this machine, with an embedded cluster: with real steps and small programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fast_training_cluster import Runs, running
from support.local_pipeline import run_here

from trainwright.api.kinds import TRAINJOB
from trainwright.checkpoints.promotion import Alias
from trainwright.storage.uri import StorageUri

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Retraining:
    """Runs of the pipeline on one workspace and one folder of exports."""

    def __init__(self, runs: Runs):
        self.runs, self.count = runs, 0
        self.workspace = runs.claim("w")
        self.export_uri = str(StorageUri.from_path(runs.folder / "exports"))
        self.model = runs.inputs("base").model

    def data(self, name: str, count: int) -> str:
        path = self.runs.folder / "sources" / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"prompt": f"{name} {n}?", "completion": "!"}) + "\n" for n in range(count)))
        return str(StorageUri.from_path(path))

    def run(self, dataset: str, **parameters: Any) -> str:
        """Run the pipeline to its end; returns what it printed."""
        self.count += 1
        given = {
            "dataset_uri": dataset,
            "model_uri": self.model,
            "export_uri": self.export_uri,
            "workspace": "pvc://w",
            "runtime": "fast",
            "training": {"workspace_path": str(self.workspace)},
            "evaluation": {"runtime": "fast-comparison"},
            **parameters,
        }
        folder = self.runs.folder
        ended, printed = run_here("retrain", given, folder / f"root-{self.count}", folder / "home/kubeconfig")
        assert ended.state == "SUCCEEDED", printed[-6000:]
        return printed

    @property
    def champion(self) -> str:
        record = Alias(self.export_uri).read()
        assert record is not None
        return record.current.uri

    def jobs(self) -> int:
        return len(self.runs.cluster.list(TRAINJOB, "default").items)


@pytest.fixture
def retraining(tmp_path: Path) -> Iterator[Retraining]:
    with running(tmp_path) as runs:
        yield Retraining(runs)


def test_a_champion_is_replaced_by_better_ones_only_and_can_be_rolled_back(retraining: Retraining) -> None:
    small, large, tiny = retraining.data("small", 20), retraining.data("large", 40), retraining.data("tiny", 15)
    retraining.run(small)
    first = retraining.champion
    assert retraining.jobs() == 2, "a training and an evaluation"

    assert "nothing to train: the champion" in retraining.run(small)
    assert retraining.jobs() == 2, "nothing to train on"

    retraining.run(large)
    better = retraining.champion
    assert better != first
    assert retraining.jobs() == 5, "a training, and evaluations of both"

    assert "kept: not better" in retraining.run(tiny)
    assert retraining.champion == better
    assert "was not promoted: not better" in retraining.run(tiny), "the next night"
    assert retraining.jobs() == 8, "nothing is trained that was kept out already"

    retraining.run(tiny, roll_back=True)
    assert retraining.champion == first
    assert retraining.jobs() == 8

    retraining.run(large)
    assert retraining.champion != first, "other data than the champion's: trained again, and better again"
