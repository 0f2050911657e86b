"""An evaluation is of the files that were exported, and its result is of this evaluation: on a cluster that is only pretended."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.checkpoints.errors import CheckpointError, FigureNotFinite
from trainwright.checkpoints.manifest import MANIFEST, Manifest, ManifestFile
from trainwright.jobs import Submission, Waiting
from trainwright.jobs.request.setting import names_of
from trainwright.steps import evaluate
from trainwright.steps.requests import EvaluateExport, StepRun
from trainwright.steps.workspace_steps import HereSteps
from trainwright.storage.uri import StorageUri
from trainwright.workspace.layout import WorkspaceError

FILES = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights", "trainer_state.json": b'{"global_step": 5}'}
LOSSES = {"before": {"loss": 4.0, "perplexity": 54.6}, "after": {"loss": 1.0, "perplexity": 2.7}}
SAMPLE = {"prompt": "p", "expected": "e", "before": "b", "after": "a"}
RESULT = {**LOSSES, "rows": 2, "held_out": True, "sample": SAMPLE}
JobPlay = Callable[[Path, Path], None]


@pytest.fixture
def exported(tmp_path: Path) -> tuple[str, str]:
    """URI and digest of an export."""
    folder = tmp_path / "exports" / "checkpoint-5"
    folder.mkdir(parents=True)
    files = []
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
        files.append(ManifestFile(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest(), key=name))
    origin = {kind: f"sha256:{letter * 64}" for kind, letter in (("dataset", "d"), ("model", "e"))}
    finding = {"severity": "warning", "name": "never_stops", "text": "it never stops"}
    metadata = {"origin": origin, "loss_on": "answers", "data_findings": [finding]}
    manifest = Manifest(
        format="hf-trainer", step=5, source="r", created="t", confirmed="checked", files=tuple(files), metadata=metadata
    )
    (folder / MANIFEST).write_bytes(manifest.text())
    return str(StorageUri.from_path(folder)), manifest.digest


def write_result(checkpoint: Path, out: Path) -> None:
    del checkpoint
    out.write_text(json.dumps(RESULT))


@pytest.fixture
def evaluated(tmp_path: Path, exported: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    def make(job: JobPlay = write_result, **options: Any) -> dict[str, Any]:
        def run_step(submission: Submission, _waiting: Waiting) -> None:
            request = submission.request
            told = dict(zip(request.args[::2], request.args[1::2], strict=True))
            assert told["--loss-on"] == "answers"
            job(place(tmp_path) / "checkpoint", place(tmp_path) / Path(told["--out"]).name)

        monkeypatch.setattr(evaluate, "run_step", run_step)
        uri, digest = exported
        asked = {name: options.pop(name) for name in [*options] if name in names_of(EvaluateExport)}
        request = EvaluateExport.parse({"checkpoint_uri": uri, "checkpoint_digest": digest, **asked})
        run = StepRun(options.pop("owner", "kfp"), "run-7")
        asked_of = evaluate.EvaluationJob(None, "n", "pvc://c")  # type: ignore[arg-type]  # none is reached
        return evaluate.evaluate_export(asked_of, request, run, HereSteps(tmp_path / "w"), **options)

    return make


def place(tmp_path: Path) -> Path:
    return next((tmp_path / "w/runs/run-7/evaluation").iterdir())


@pytest.mark.parametrize(("dataset", "expected"), [("", 2), (f"sha256:{'d' * 64}", 2), (f"sha256:{'f' * 64}", None)])
def test_rows_of_another_dataset_are_not_said_to_be_trained_on(
    tmp_path: Path, evaluated: Callable[..., Any], dataset: str, expected: int | None
) -> None:
    def write(_checkpoint: Path, out: Path) -> None:
        out.write_text(json.dumps({**RESULT, "trained_rows": 2}))

    result = evaluated(write, dataset_digest=dataset)
    assert result.get("trained_rows") == expected
    assert ("2 of 2 rows are also trained on" in result["summary"]) is bool(expected)
    kept = json.loads((place(tmp_path) / evaluate.RESULT).read_text())
    names = ("trained_rows", "dataset_digest", "checkpoint_digest", "rows")
    assert [kept.get(name) for name in names] == [result.get(name) for name in names]


def test_figures_have_those_of_the_base_and_the_marks_of_the_dataset(evaluated: Callable[..., Any]) -> None:
    result = evaluated()
    assert "- warning\\: it never stops" in result["summary"]
    figures = evaluate.figures_of(result)
    assert figures["base"] == LOSSES["before"]
    assert figures["data_findings"] == ["never_stops"]
    assert figures["loss"] == 1.0


@pytest.mark.parametrize("how", ["changed", "removed", "linked", "added", "pipe"])
def test_a_local_copy_that_differs_is_restored_before_the_job_sees_it(
    tmp_path: Path, evaluated: Callable[..., dict[str, Any]], how: str
) -> None:
    evaluated()
    weights = place(tmp_path) / "checkpoint" / "adapter_model.safetensors"
    if how == "changed":
        weights.write_bytes(b"planted")
    elif how == "added":
        (weights.parent / "model.safetensors").write_bytes(b"planted")
    else:
        weights.unlink()
        if how == "linked":
            (tmp_path / "elsewhere").write_bytes(b"weights")
            weights.symlink_to(tmp_path / "elsewhere")
        elif how == "pipe":
            os.mkfifo(weights)
    seen: list[dict[str, bytes]] = []

    def look(checkpoint: Path, out: Path) -> None:
        seen.append({path.name: path.read_bytes() for path in checkpoint.iterdir()})
        write_result(checkpoint, out)

    evaluated(look, max_rows=3)
    assert seen == [FILES]


def test_a_copy_that_is_changed_during_the_evaluation_is_an_error(tmp_path: Path, evaluated: Callable[..., Any]) -> None:
    def change(checkpoint: Path, out: Path) -> None:
        (checkpoint / "adapter_model.safetensors").write_bytes(b"planted")
        write_result(checkpoint, out)

    with pytest.raises(CheckpointError, match=r"was changed while it was evaluated: adapter_model\.safetensors has a different"):
        evaluated(change)
    assert not (place(tmp_path) / evaluate.RESULT).exists()


@pytest.mark.parametrize(
    "options", [{"max_rows": 3}, {"sample_row": 1}, {"owner": "kfp@2"}, {"resources_per_node": {"cpu": "2"}}]
)
def test_an_earlier_result_is_not_taken_for_that_of_another_question(
    evaluated: Callable[..., dict[str, Any]], options: dict[str, Any]
) -> None:
    assert evaluated()["after"]["loss"] == 1.0
    with pytest.raises(CheckpointError, match="succeeded but wrote no valid result"):
        evaluated(lambda *_: None, **options)
    assert evaluated(lambda *_: None)["after"]["loss"] == 1.0  # the same question has its answer


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"before": {}}', '{"before": {"loss": "x"}, "after": {"loss": 1}}', "[" * 100_000]
)
def test_a_result_without_losses_is_an_error_that_names_the_file(evaluated: Callable[..., Any], text: str) -> None:
    with pytest.raises(CheckpointError, match=r"\.result-[0-9a-f]{12}\.json"):
        evaluated(lambda _checkpoint, out: out.write_text(text))


def test_a_result_that_is_a_link_is_not_read(evaluated: Callable[..., Any]) -> None:
    with pytest.raises(CheckpointError, match=r"outside of"):
        evaluated(lambda _checkpoint, out: out.symlink_to("/proc/self/environ"))


@pytest.mark.parametrize("planted", ["runs", "runs/run-7", "runs/run-7/evaluation"])
def test_a_link_that_a_training_pod_has_left_leads_nowhere(tmp_path: Path, evaluated: Callable[..., Any], planted: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "w" / planted).parent.mkdir(parents=True)
    (tmp_path / "w" / planted).symlink_to(elsewhere)
    with pytest.raises(WorkspaceError, match=f"{planted} is a link; remove it"):
        evaluated()
    assert not list(elsewhere.iterdir())


def test_a_result_with_figures_that_are_not_finite_leaves_a_file_that_every_reader_accepts(
    tmp_path: Path, evaluated: Callable[..., Any]
) -> None:
    def diverged(_checkpoint: Path, out: Path) -> None:
        out.write_text(json.dumps({**RESULT, "after": {"loss": float("nan"), "perplexity": float("inf")}}))

    with pytest.raises(FigureNotFinite, match="has the loss nan after training"):
        evaluated(diverged)
    written = (place(tmp_path) / evaluate.RESULT).read_text()
    assert json.loads(written, parse_constant=pytest.fail)["after"] == {"loss": None, "perplexity": None}
