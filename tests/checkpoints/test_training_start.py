"""What a training starts from is one true line, over restarts, retries and restored exports, in its pod's status and its card."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prepared_folders import prepare

from trainwright.api import names
from trainwright.checkpoints import resume_point as program
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.job_record import JOBS
from trainwright.checkpoints.manifest import OWNER
from trainwright.checkpoints.publish import export_checkpoint
from trainwright.checkpoints.registries.export_facts import read_facts
from trainwright.checkpoints.registries.model_card import export_page
from trainwright.checkpoints.training_start import STARTS, recorded_starts
from trainwright.runtimes.bundled import bundled_runtime

NOTHING = "nothing: there is no checkpoint of this run"


@pytest.fixture
def start(output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Starts the first pod of a job, as its init container does; returns the termination message."""
    for kind in ("dataset", "model"):
        prepare(output.parent, kind, "1")
    message = tmp_path / "termination-log"
    monkeypatch.setenv("TRAINWRIGHT_TERMINATION_LOG", str(message))
    for name in ("PET_NNODES", "PET_NPROC_PER_NODE"):
        monkeypatch.setenv(name, "1")

    def started(job: str, **variables: str) -> str:
        message.write_text("")
        with monkeypatch.context() as patch:
            for name, value in {"TRAINJOB_NAME": job, names.RESUME_JOB_VARIABLE: f"uid-{job}", **variables}.items():
                patch.setenv(name, value)
            words = ["--workspace", str(output.parent), "--config", str(tmp_path / "c"), "--launcher", str(tmp_path / "l.py")]
            patch.setattr("sys.argv", ["resume_point", *words])
            assert program.main() == 0
        return message.read_text()

    return started


def test_the_line_is_true_over_restarts_and_retries(start: Callable[..., str], write_checkpoint: Callable[..., Path]) -> None:
    assert start("first") == NOTHING
    assert start("first") == NOTHING
    write_checkpoint(5)
    assert start("first") == f"checkpoint-5 of its own, after a restart; the job began with {NOTHING}"
    assert start("second") == "checkpoint-5 of its own run, of the TrainJob first"
    write_checkpoint(10)
    began = "the job began with checkpoint-5 of its own run, of the TrainJob first"
    assert start("second") == f"checkpoint-10 of its own, after a restart; {began}"


@pytest.mark.medium
def test_a_restored_export_is_that_of_its_owner_also_after_a_restart(
    start: Callable[..., str], output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(10)
    exports = (tmp_path / "exports").as_uri()
    uri = export_checkpoint(output, exports, source="run-1/job-1", metadata={OWNER: "airflow/other"}).uri
    output.rename(tmp_path / "elsewhere")
    began = f"checkpoint-10, restored from the export {uri} of run-1/job-1 by airflow/other"
    assert start("mine", **{names.RESUME_EXPORT_VARIABLE: exports}) == began
    assert start("mine") == began, "a folder that was restored is no checkpoint of its own"
    write_checkpoint(15)
    assert start("mine") == f"checkpoint-15 of its own, after a restart; the job began with {began}"
    card = export_page(read_facts(open_export(export_checkpoint(output, exports, source="run-2/mine").uri)))
    assert "checkpoint-10, restored from the export of run-1/job-1 by airflow/other" in card
    assert "file://" not in card, "a bucket's name is no business of those who read a card"


def test_weights_are_what_a_job_began_with(
    start: Callable[..., str], output: Path, tmp_path: Path, write_checkpoint: Callable[..., Path]
) -> None:
    files = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"\x02\x00\x00\x00\x00\x00\x00\x00{}"}
    write_checkpoint(10, **files)
    uri = export_checkpoint(output, (tmp_path / "exports").as_uri(), source="run-1/job-1").uri
    output.rename(tmp_path / "elsewhere")
    assert start("mine", **{names.RESUME_VARIABLE: f"weights:{uri}"}) == f"the weights of the export {uri} (adapter, step 10)"


def test_ranks_other_than_the_first_write_no_message(start: Callable[..., str], output: Path) -> None:
    assert start("job", JOB_COMPLETION_INDEX="1") == ""
    assert not (output / STARTS).exists()


@pytest.mark.parametrize("content", ["", "[]", '{"restored": [], "starts": [1, ["a"], ["a", 2]]}', "[" * 100_000])
def test_a_broken_record_is_ignored(
    start: Callable[..., str], output: Path, write_checkpoint: Callable[..., Path], content: str
) -> None:
    start("job")
    (output / STARTS).write_text(content)
    write_checkpoint(5)
    assert start("job") == "checkpoint-5 of its own, after a restart"
    assert recorded_starts(output) == ["checkpoint-5 of its own, after a restart"]


def test_without_a_record_of_writers_nobody_is_named(
    start: Callable[..., Any], output: Path, write_checkpoint: Callable[..., Path]
) -> None:
    start("job")
    write_checkpoint(5)
    (output / JOBS).unlink()
    assert start("next").startswith("checkpoint-5 of its own run")


def test_a_job_is_told_from_an_earlier_one_of_its_name(start: Callable[..., str], write_checkpoint: Callable[..., Path]) -> None:
    start("job")
    write_checkpoint(5)
    again = start("job", **{names.RESUME_JOB_VARIABLE: "uid of the next"})
    assert again == "checkpoint-5 of its own run, of the TrainJob job"
    runtime = bundled_runtime("trl-sft")
    assert runtime is not None
    (job,) = (job for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if job["name"] == "node")
    (container,) = job["template"]["spec"]["template"]["spec"]["initContainers"]
    assert names.RESUME_JOB_VARIABLE in {variable["name"] for variable in container["env"]}
