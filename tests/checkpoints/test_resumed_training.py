"""Real training resumes from a restored export as if it had never stopped: every loss of every rank is the same, to the last bit.

The local output is deleted before. Only the export has the weights, the states of optimizer, scheduler and random
generators, and the position in the data.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from torchrun import torchrun

from trainwright.checkpoints.catalog import read_catalog
from trainwright.checkpoints.find import find_checkpoints
from trainwright.checkpoints.job_record import Writer, record_writer
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.checkpoints.watch import Watch
from trainwright.storage import open_store
from trainwright.storage.uri import StorageUri

PROGRAM = Path(__file__).with_name("train_and_resume.py")
DEEPSPEED = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
RANKS = 2
HALF, ALL = 6, 12
"""Steps. An epoch has seven."""

Losses = list[dict[str, float]]
"""Of each rank, by step."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def started(mode: str, output: Path, report: Path, *options: str, expected: int = 0) -> AbstractContextManager[None]:
    """Train during the block, and wait for the exit code `expected`."""
    command = [str(PROGRAM), mode, str(output), str(report), *options]
    return torchrun(report.with_name(f"{report.name}.log"), RANKS, *command, expected=expected)


def train(mode: str, output: Path, report: Path, *options: str) -> Losses:
    """Train to the end."""
    with started(mode, output, report, *options):
        pass
    return losses(report)


def train_until_killed(output: Path, report: Path) -> None:
    """Train by transformers' Trainer until all ranks are killed after `HALF`."""
    with started("trainer", output, report, "--stop-after", str(HALF), expected=1):
        pass
    assert "Signal 9" in report.with_name(f"{report.name}.log").read_text("utf-8", "replace")


def losses(report: Path) -> Losses:
    return [json.loads((report / f"rank-{rank}.json").read_bytes()) for rank in range(RANKS)]


def after(step: int, found: Losses) -> Losses:
    """The losses of the steps after `step`; every rank has some."""
    kept = [{key: loss for key, loss in rank.items() if int(key) > step} for rank in found]
    assert all(kept)
    return kept


def history(checkpoint: Path) -> list[dict[str, float]]:
    """What the Trainer has logged since the first step: the losses of all ranks together, gradients, learning rates, epochs."""
    return list(json.loads((checkpoint / "trainer_state.json").read_bytes())["log_history"])


def export_and_restore(output: Path, target: str, restored: Path, options: ExportOptions | None = None) -> ExportResult:
    """Export the checkpoint of `HALF` from `output`, delete `output` and restore the export."""
    exported = export_checkpoint(output, target, source="run", step=HALF, options=options)
    shutil.rmtree(output)
    verify_export(exported.uri, digest=exported.digest)
    restore_checkpoint(exported.uri, restored, digest=exported.digest)
    return exported


@pytest.fixture
def file_target(tmp_path: Path) -> str:
    return str(StorageUri.from_path(tmp_path / "exports"))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Losses]]:
    """`uninterrupted(mode)`: the output and the losses of a training that has never stopped, run once."""
    base, made = tmp_path_factory.mktemp("uninterrupted"), dict[str, tuple[Path, Losses]]()

    def run(mode: str) -> tuple[Path, Losses]:
        if mode not in made:
            made[mode] = (base / mode, train(mode, base / mode, base / f"{mode}-losses"))
        return made[mode]

    return run


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a Trainer that was killed after half of its steps."""
    base = tmp_path_factory.mktemp("killed")
    train_until_killed(base / "output", base / "losses")
    return base / "output"


def test_a_killed_trainer_resumes_from_an_export_with_the_same_losses(
    killed: Path, uninterrupted: Callable[[str], tuple[Path, Losses]], tmp_path: Path, s3_folder: str
) -> None:
    output = Path(shutil.copytree(killed, tmp_path / "output"))
    exported = export_and_restore(output, s3_folder, output / f"checkpoint-{HALF}")
    assert (exported.manifest.format, exported.manifest.step) == ("hf-trainer", HALF)

    resumed = train("trainer", output, tmp_path / "losses", "--resume", str(output / f"checkpoint-{HALF}"))
    reference, expected = uninterrupted("trainer")
    assert resumed == after(HALF, expected)
    last = f"checkpoint-{ALL}"
    assert history(output / last) == history(reference / last)
    assert len(history(output / last)) == ALL
    assert (output / last / "model.safetensors").read_bytes() == (reference / last / "model.safetensors").read_bytes()


@pytest.mark.wide(part="formats")
def test_losses_differ_after_an_export_of_the_weights_alone(
    killed: Path, uninterrupted: Callable[[str], tuple[Path, Losses]], tmp_path: Path, file_target: str
) -> None:
    """The comparison notices states that are not restored."""
    output = Path(shutil.copytree(killed, tmp_path / "output"))
    export_and_restore(output, file_target, tmp_path / "restored", ExportOptions(resumable=False))
    resumed = train("trainer", output, tmp_path / "losses", "--resume", str(tmp_path / "restored"))
    _, expected = uninterrupted("trainer")
    assert [list(rank) for rank in resumed] == [list(rank) for rank in after(HALF, expected)]
    for found, wanted in zip(resumed, after(HALF, expected), strict=True):
        assert all(found[step] != wanted[step] for step in wanted)


@pytest.mark.parametrize("mode", ["lora", pytest.param("zero2", marks=DEEPSPEED), pytest.param("zero3", marks=DEEPSPEED)])
def test_a_trainer_of_adapters_or_with_deepspeed_resumes_from_an_export_with_the_same_losses(
    mode: str, uninterrupted: Callable[[str], tuple[Path, Losses]], tmp_path: Path, file_target: str
) -> None:
    reference, expected = uninterrupted(mode)
    output = Path(shutil.copytree(reference, tmp_path / "output"))
    exported = export_and_restore(output, file_target, output / f"checkpoint-{HALF}")
    assert exported.manifest.format == "hf-trainer"
    resumed = train(mode, output, tmp_path / "losses", "--resume", str(output / f"checkpoint-{HALF}"))
    assert resumed == after(HALF, expected)
    assert history(output / f"checkpoint-{ALL}") == history(reference / f"checkpoint-{ALL}")


@pytest.mark.parametrize(
    "formats",
    [
        pytest.param(
            {"dcp-fsdp": "torch-dcp", "dcp-ddp": "torch-dcp", "dcp-ranks": "torch-dcp", "marked-ddp": "marked"}, id="torch"
        ),
        pytest.param(
            dict.fromkeys(("fsdp-sharded", "fsdp-full", "fsdp-ranks"), "hf-trainer"),
            id="accelerate",
            marks=pytest.mark.wide(part="formats"),
        ),
        pytest.param(
            dict.fromkeys(("engine-zero1", "engine-zero2", "engine-zero3"), "deepspeed"), id="deepspeed", marks=DEEPSPEED
        ),
    ],
)
def test_a_training_loop_resumes_from_an_export_with_the_same_losses(
    formats: dict[str, str], tmp_path: Path, file_target: str
) -> None:
    """All modes of a library in one launch, since its import takes longer than the training."""
    output, first, second = tmp_path / "output", tmp_path / "first", tmp_path / "second"
    with started(",".join(formats), output, first):
        pass
    for mode, form in formats.items():
        assert [each.step for each in find_checkpoints(output / mode)] == [HALF, ALL]
        exported = export_and_restore(output / mode, f"{file_target}/{mode}", tmp_path / "restored" / mode)
        assert exported.manifest.format == form, mode
    with started(",".join(formats), output, second, "--resume", str(tmp_path / "restored")):
        pass
    for mode in formats:
        assert losses(second / mode) == after(HALF, losses(first / mode)), mode


def test_a_watch_beside_a_rotating_trainer_publishes_only_complete_checkpoints_and_the_last_one_resumes(
    uninterrupted: Callable[[str], tuple[Path, Losses]], tmp_path: Path, file_target: str
) -> None:
    output, exported = tmp_path / "output", list[ExportResult]()
    output.mkdir()
    record_writer(output, Writer("run", "uid", RANKS))
    watch = Watch(
        output,
        file_target,
        "run",
        threading.Event(),
        options=ExportOptions(quiet_seconds=2.0),
        poll_seconds=0.2,
        on_export=exported.append,
    )
    thread = threading.Thread(target=watch.run)
    thread.start()
    stopped = ALL - 2
    rotates = ("--save-every", "1", "--keep", "1", "--pause", "0.6", "--delay", "0.3", "--stop-after", str(stopped))
    try:
        with started("trainer", output, tmp_path / "killed", *rotates, expected=1):
            pass
    finally:
        watch.stop.set()
        thread.join(60)
    assert not thread.is_alive()
    assert watch.failure == ""
    assert [each.name for each in output.glob("checkpoint-*")] == [f"checkpoint-{stopped}"]

    catalog = [each.export for each in read_catalog(open_store(file_target)).exports]
    assert [each.manifest.step for each in catalog] == sorted({each.manifest.step for each in exported})
    assert len(catalog) > 1, "none was exported before it was rotated away"
    for each in catalog:
        manifest = verify_export(each.uri)
        assert {f"rng_state_{rank}.pth" for rank in range(RANKS)} <= {file.path for file in manifest.files}
        restore_checkpoint(each.uri, tmp_path / "restored" / f"checkpoint-{manifest.step}")
    restored = find_checkpoints(tmp_path / "restored")
    assert [(each.step, each.incomplete) for each in restored] == [(each.manifest.step, "") for each in catalog]

    shutil.rmtree(output)
    assert restored[-1].step == stopped
    resumed = train("trainer", output, tmp_path / "losses", "--resume", str(restored[-1].path))
    assert resumed == after(stopped, uninterrupted("trainer")[1])
