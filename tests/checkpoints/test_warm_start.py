"""A new training starts from the weights of an export, unless its run has a checkpoint: what is fetched, checked, and used again."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkpoint_files import safetensors, stored_path
from prepared_folders import prepare

from trainwright.api import names
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.pointers import find_export
from trainwright.checkpoints.publish import ExportOptions, export_checkpoint
from trainwright.checkpoints.resume_point import ResumeOptions, resume_point
from trainwright.checkpoints.warm_start import Weights, restore_weights, weights_files
from trainwright.runtimes import load_weights
from trainwright.storage.uri import StorageUri

WriteCheckpoint = Callable[..., Path]
FULL = {"adapter_model.safetensors": None, "adapter_config.json": None, "model.safetensors": safetensors(b"all")}


def config(kind: str) -> bytes:
    return json.dumps({"model_type": kind, "architectures": [f"{kind}ForCausalLM"]}).encode()


@pytest.fixture
def earlier(output: Path) -> Path:
    """The workspace of the run that is exported."""
    prepare(output.parent, "dataset", "1")
    prepare(output.parent, "model", "1")
    return output.parent


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Another run: other data, the same base model."""
    prepare(tmp_path / "fresh", "dataset", "2")
    prepare(tmp_path / "fresh", "model", "1")
    return tmp_path / "fresh"


@pytest.fixture
def export(earlier: Path, output: Path, write_checkpoint: WriteCheckpoint) -> Callable[..., str]:
    """`export(step, **files)` exports a checkpoint with these files; its URI."""

    def make(step: int = 10, **files: bytes | None) -> str:
        resume_point(earlier)
        write_checkpoint(step, **files)
        target = str(StorageUri.from_path(earlier / "exports"))
        return export_checkpoint(output, target, source="run/job", step=step).uri

    return make


def restored(uri: str, workspace: Path, job: str = "job-1", **more: Any) -> Weights:
    return restore_weights(uri, workspace, workspace / "model", job=job, **more)


def content(weights: Weights) -> set[str]:
    folder = Path(weights.folder)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_an_adapter_comes_without_the_state_of_its_training(export: Callable[..., str], fresh: Path) -> None:
    uri = export()
    weights = restored(uri, fresh)
    assert (weights.kind, weights.step, weights.uri) == ("adapter", 10, uri)
    assert content(weights) == {"adapter_model.safetensors", "adapter_config.json", "nested/ü.txt"}
    assert Path(weights.folder).parent == fresh / "weights"
    assert not (fresh / "output").exists()


def test_all_weights_of_a_model_come_with_its_configuration(export: Callable[..., str], fresh: Path) -> None:
    (fresh / "model" / "config.json").write_bytes(config("Llama"))
    weights = restored(export(**FULL, **{"config.json": config("Llama")}), fresh)
    assert weights.kind == "model"
    assert {"model.safetensors", "config.json"} < content(weights)


@pytest.mark.medium
def test_the_latest_export_of_a_run_is_used_until_the_job_is_another(export: Callable[..., str], fresh: Path) -> None:
    first, folder = export(5), export(5).rpartition("/")[0]
    assert restored(folder, fresh).uri == first
    second = export(10)
    assert restored(folder, fresh).uri == first  # a restarted pod
    assert restored(folder, fresh, "job-2").uri == second
    assert len([path for path in (fresh / "weights").iterdir() if path.is_dir() and path.name[0] != "."]) == 1


def test_an_export_that_has_gone_since_does_not_keep_a_pod_from_restarting(export: Callable[..., str], fresh: Path) -> None:
    uri = export()
    weights = restored(uri, fresh)
    shutil.rmtree(StorageUri.parse(uri).path)
    assert restored(uri, fresh) == weights
    with pytest.raises(NoCheckpoint):
        restored(uri, fresh, "job-2")


def test_damaged_bytes_are_never_trained_on(export: Callable[..., str], fresh: Path) -> None:
    uri = export()
    stored = stored_path(StorageUri.parse(uri).path, "adapter_model.safetensors")
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-1] + b"x")
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors is corrupt"):
        restored(uri, fresh)
    stored.write_bytes(whole)
    weights = restored(uri, fresh)
    (fresh / "weights" / "source.json").unlink()
    (Path(weights.folder) / "adapter_model.safetensors").write_bytes(b"torn")
    assert (Path(restored(uri, fresh).folder) / "adapter_model.safetensors").read_bytes() == whole


def test_an_adapter_of_another_base_model_is_refused_with_both_digests(export: Callable[..., str], fresh: Path) -> None:
    other = prepare(fresh, "model", "3")
    with pytest.raises(CheckpointError, match=rf"was trained on the base model sha256:\w+, but that of this run is {other}"):
        restored(export(), fresh)


def test_a_model_of_another_architecture_is_refused(export: Callable[..., str], fresh: Path) -> None:
    (fresh / "model" / "config.json").write_bytes(config("Qwen2"))
    with pytest.raises(CheckpointError, match="model_type of its model is Llama, that of this run's base model Qwen2"):
        restored(export(**FULL, **{"config.json": config("Llama")}), fresh)


@pytest.mark.parametrize(
    ("files", "setting"),
    [
        ({"adapter_config.json": b'{"peft_type": "XLORA", "adapters": {"0": "evil/adapter"}}'}, "adapter_config.json: adapters"),
        (
            {**FULL, "config.json": b'{"model_type": "llama", "attn_implementation": "evil/kernel"}'},
            "config.json: attn_implementation",
        ),
    ],
)
def test_settings_that_name_code_elsewhere_are_refused(
    export: Callable[..., str], fresh: Path, files: dict[str, bytes | None], setting: str
) -> None:
    with pytest.raises(CheckpointError, match=f"cannot start from the weights of .*: {setting} is "):
        restored(export(**files), fresh)


def test_an_export_without_weights_to_load_is_refused(export: Callable[..., str], fresh: Path) -> None:
    uri = export(**FULL)
    with pytest.raises(CheckpointError, match=r"it has neither adapter_model\.safetensors with adapter_config\.json, nor"):
        restored(uri, fresh)
    with pytest.raises(CheckpointError, match="its format is hf-trainer, and a new training loads weights of model"):
        weights_files(find_export(uri), formats=("model",))


def test_a_record_that_the_leader_removes_while_it_is_read_is_waited_for(
    export: Callable[..., str], fresh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = export()
    weights = restored(uri, fresh)
    exists = Path.exists
    record = fresh / "weights/source.json"

    def seen_and_removed(path: Path) -> bool:
        return exists(path) or path == record

    monkeypatch.setattr(Path, "exists", seen_and_removed)
    kept = record.read_bytes()
    record.unlink()
    threading.Timer(0.1, record.write_bytes, [kept]).start()
    assert restored(uri, fresh, leader=False, timeout=30, poll_seconds=0.01) == weights


def test_the_others_wait_for_the_leader_of_their_job(export: Callable[..., str], fresh: Path) -> None:
    uri = export()
    restored(uri, fresh, "job-0")
    answers: list[Weights] = []
    waiting = partial(restored, uri, fresh, leader=False, timeout=30, poll_seconds=0.01)
    other = threading.Thread(target=lambda: answers.append(waiting()))
    other.start()
    weights = restored(uri, fresh)
    other.join(30)
    assert answers == [weights]
    with pytest.raises(CheckpointError, match=r"has not restored the weights of .* within 0 s; check that all nodes mount"):
        restored(uri, fresh, "job-2", leader=False, timeout=0)


def test_the_option_comes_from_the_environment() -> None:
    told = {
        names.RESUME_VARIABLE: "weights:s3://b/run",
        names.RESUME_JOB_VARIABLE: "uid",
        names.RESUME_EXPORT_VARIABLE: "s3://b/own",
    }
    assert ResumeOptions.from_environment(told) == ResumeOptions(job="uid", export="s3://b/own", weights="s3://b/run")


class Started:
    """Starts of the init container, as the runtime has it."""

    def __init__(self, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workspace, self.folder, self.patch = workspace, workspace.parent / "resume", monkeypatch

    def __call__(self, resume: str, **env: str) -> dict[str, Any]:
        name = "trainwright.checkpoints.resume_point"
        files = ["--config", str(self.folder / "trl.yaml"), "--launcher", str(self.folder / "orderly_exit.py")]
        self.patch.setattr(sys, "argv", [name, "--workspace", str(self.workspace), *files])
        variables = {"JOB_COMPLETION_INDEX": "0", names.RESUME_VARIABLE: resume, names.RESUME_JOB_VARIABLE: "uid", **env}
        for variable, value in variables.items():
            self.patch.setenv(variable, value)
        self.patch.delitem(sys.modules, name, raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(name, run_name="__main__")
        assert ended.value.code == 0
        found: dict[str, Any] = json.loads((self.folder / "trl.yaml").read_bytes())
        return found

    @property
    def instructions(self) -> dict[str, Any] | None:
        path = self.folder / "load_weights.json"
        return json.loads(path.read_bytes()) if path.exists() else None


def test_a_run_with_a_checkpoint_resumes_from_that(
    export: Callable[..., str],
    fresh: Path,
    output: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri, started = export(), Started(fresh, monkeypatch)
    assert started(f"weights:{uri}") == {}
    assert started.instructions is not None
    assert started.instructions["uri"] == uri
    assert "def install" in (started.folder / "load_weights.py").read_text("utf-8")
    assert capsys.readouterr().out == f"starting from the weights of the export {uri} (adapter, step 10)\n"
    own = fresh / "output" / "checkpoint-15"
    shutil.copytree(output / "checkpoint-10", own)
    (own / "trainer_state.json").write_text('{"global_step": 15}')
    assert started(f"weights:{uri}") == {"resume_from_checkpoint": str(own)}
    assert started.instructions is None
    # a job after a preempted or failed one: another UID, the same folder
    assert started(f"weights:{uri}", **{names.RESUME_JOB_VARIABLE: "next"}) == {"resume_from_checkpoint": str(own)}


def test_a_run_with_an_export_of_its_own_resumes_from_that(
    earlier: Path, output: Path, export: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = export()
    prepare(tmp_path / "again", "dataset", "1")  # a new volume of the same run
    prepare(tmp_path / "again", "model", "1")
    started = Started(tmp_path / "again", monkeypatch)
    found = started(f"weights:{uri}", **{names.RESUME_EXPORT_VARIABLE: uri})
    assert found == {"resume_from_checkpoint": str(tmp_path / "again" / "output" / "checkpoint-10")}
    assert started.instructions is None


def test_an_export_without_training_state_is_enough(
    earlier: Path, output: Path, write_checkpoint: WriteCheckpoint, fresh: Path
) -> None:
    resume_point(earlier)
    write_checkpoint(5)
    target = str(StorageUri.from_path(earlier / "exports"))
    exported = export_checkpoint(output, target, source="run/job", step=5, options=ExportOptions(resumable=False))
    assert restored(exported.uri, fresh).kind == "adapter"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sft", "--model_name_or_path", "/workspace/model", "--a"], ["sft", "--model_name_or_path", "/new", "--a"]),
        (["sft", "--model_name_or_path=/workspace/model"], ["sft", "--model_name_or_path=/new"]),
    ],
)
def test_the_weights_of_a_model_are_loaded_in_place_of_the_base_model(words: list[str], expected: list[str]) -> None:
    assert load_weights._with_model(words, "/new", "s3://b/run") == expected


def test_training_with_a_reference_is_refused() -> None:
    with pytest.raises(SystemExit, match="weights of s3://b/run: this training compares with a reference model"):
        load_weights.refuse_reference(SimpleNamespace(ref_model=None), "s3://b/run")
    load_weights.refuse_reference(SimpleNamespace(), "s3://b/run")


def test_unloadable_weights_exit_with_the_reason() -> None:
    with pytest.raises(SystemExit, match="weights of s3://b/run: the command has no --model_name_or_path"):
        load_weights._with_model(["sft"], "/new", "s3://b/run")
    with pytest.raises(SystemExit, match="it is an adapter, but this run trains all weights; set method=lora"):
        load_weights.start_from(SimpleNamespace(), {"kind": "adapter", "uri": "s3://b/run", "folder": "/new"})
