"""The pipeline `sweep`, run on this machine, with an embedded cluster: with real steps and a small program that reports a loss."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from support.fast_training_cluster import Runs, learned, running, script
from support.local_pipeline import run_here

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import annotations_of
from trainwright.api.phase import Phase, phase_of
from trainwright.checkpoints.promotion import Alias
from trainwright.checkpoints.restore import restore_checkpoint
from trainwright.storage.uri import StorageUri

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Sweeping:
    def __init__(self, runs: Runs):
        self.runs = runs
        runs.claim("w")
        self.export_uri = str(StorageUri.from_path(runs.folder / "exports"))
        self.inputs = runs.inputs("base")

    def run(self, run_id: str, root: str = "root", *, adopt_finished: bool = False, **parameters: Any) -> tuple[str, str]:
        """Run the pipeline to its end; returns its state, and what it printed."""
        of_training = {"run_id": run_id, "runtime": "fast", "ending": {"adopt_finished": adopt_finished}}
        given = {
            **self.inputs.uris,
            "export_uri": self.export_uri,
            "workspace": "pvc://w",
            "training": {**of_training, "env": script(fails_with={"lora_r": "13"})},
            "evaluation": {"runtime": "fast-evaluation"},
            "data": {"test_fraction": 0.3},
            **parameters,
        }
        folder = self.runs.folder
        ended, printed = run_here("sweep", given, folder / root, folder / "home/kubeconfig")
        return ended.state, printed

    def trainings(self) -> list[Any]:
        jobs = self.runs.cluster.list(TRAINJOB, "default").items
        return [job for job in jobs if "/train" in annotations_of(job)[names.OWNER_ANNOTATION]]


@pytest.fixture(scope="module")
def sweeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweeping]:
    with running(tmp_path_factory.mktemp("sweep")) as runs:
        yield Sweeping(runs)


def test_the_best_trial_is_exported_and_a_failed_one_only_listed(sweeping: Sweeping) -> None:
    trials = [{"learning_rate": 1.0}, {"learning_rate": 2.5}, {"learning_rate": 3.0, "lora_rank": 13}, {"learning_rate": 9.0}]
    state, printed = sweeping.run("first", trials=trials, promote="always")
    assert state == "SUCCEEDED", printed
    assert "best: trial 1 with eval_loss 0.5, of 4 trials, 3 of them comparable" in printed
    phases = sorted(str(phase_of(job)) for job in sweeping.trainings())
    assert phases == [Phase.Failed, Phase.Succeeded, Phase.Succeeded, Phase.Succeeded]
    record = Alias(sweeping.export_uri).read()
    assert record is not None
    restore_checkpoint(record.current.uri, sweeping.runs.folder / "restored", digest=record.current.manifest)
    given = dict(pairwise(learned(sweeping.runs.folder / "restored")["arguments"]))
    assert given["--learning_rate"] == "2.5"
    assert given["--eval_strategy"] == "epoch"

    state, printed = sweeping.run("first", "again", trials=trials, promote="always", adopt_finished=True)
    assert state == "SUCCEEDED", printed
    assert len(sweeping.trainings()) == 5, "it adopts what has succeeded, and tries the failed one once more"


def test_a_sweep_fails_when_no_trial_can_be_picked(sweeping: Sweeping) -> None:
    before = len(sweeping.trainings())
    space = {"learning_rate": [1.0, 2.0], "lora_rank": [8]}
    state, printed = sweeping.run("second", "other", space=space, metric="accuracy")
    assert state == "FAILED"
    assert "none reported 'accuracy'; reported was: current_step, entropy, epoch, grad_norm" in printed
    jobs = sweeping.trainings()
    assert len(jobs) == before + 2
    assert all(is_finished(job) for job in jobs)
