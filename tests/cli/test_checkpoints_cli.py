"""`trainwright export`, `verify` and `restore`: what they print for people and machines, and how they fail."""

import json
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from trainwright.checkpoints import pin
from trainwright.checkpoints.job_record import JOBS
from trainwright.cli.app import app
from trainwright.storage.uri import StorageUri
from trainwright.workspace import run_folder
from trainwright.workspace.layout import run_name


@pytest.fixture(autouse=True)
def without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that was just written is exported at once."""
    monkeypatch.setattr(pin, "QUIET_SECONDS", 0.0)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """A training output folder with whole checkpoints of the steps 5 and 10, and a half-written one of 15."""
    for step in (5, 10, 15):
        folder = tmp_path / "output" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step})[: None if step < 15 else 5])
    return tmp_path / "output"


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(StorageUri.from_path(tmp_path / "exports"))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def facts(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    printed: dict[str, Any] = json.loads(result.stdout)
    return printed


def test_a_run_without_exports_is_named(tmp_path: Path) -> None:
    listed = run("checkpoints", "list", f"file://{tmp_path}")
    assert (listed.exit_code, listed.stdout, listed.stderr) == (0, "", f"no exports in file://{tmp_path}\n")


def test_a_checkpoint_goes_out_is_verified_and_comes_back(tmp_path: Path, output: Path, target: str) -> None:
    exported = facts("export", output, target, "--run", "run", "--source", "run/job")
    assert exported == {
        "uri": f"{target}/run/checkpoint-10",
        "existed": False,
        "step": 10,
        "files": 2,
        "bytes": 29,
        "digest": exported["digest"],
        "conditional_writes": True,
        "confirmed": "read-back",
    }
    common = {name: exported[name] for name in ("step", "files", "bytes", "digest")}
    digest = ("--digest", exported["digest"])
    assert facts("verify", exported["uri"], *digest) == {"uri": exported["uri"], "verified": True, **common}
    assert facts("verify", exported["uri"], "--quick")["verified"] == "sizes, and checksums that the store reports"
    assert facts("restore", exported["uri"], tmp_path / "back", *digest) == {"folder": str(tmp_path / "back"), **common}
    assert (tmp_path / "back" / "trainer_state.json").read_bytes() == (
        output / "checkpoint-10" / "trainer_state.json"
    ).read_bytes()
    assert json.loads((tmp_path / "exports" / "run" / "checkpoint-10" / "manifest.json").read_bytes())["source"] == "run/job"
    assert facts("export", output, target, "--run", "run") == {**exported, "existed": True}
    again = run("restore", exported["uri"], output)
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert "exists and is not empty, and is not this export" in again.stderr


def test_people_get_one_line_for_each_fact(output: Path, target: str) -> None:
    lines = run("export", output, target, "--step", 5, "--run", "my run").stdout.splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert (shown["existed"], shown["step"], shown["confirmed"]) == ("False", "5", "read-back")
    assert shown["uri"].startswith(f"{target}/my-run")
    assert yaml.safe_load(run("verify", shown["uri"], "-o", "yaml").stdout)["verified"] is True
    assert run("verify", shown["uri"], "--quick").exit_code == 0


def test_the_run_is_known_by_its_folder_or_by_the_job_that_trained(tmp_path: Path, output: Path, target: str) -> None:
    assert facts("export", output, target)["uri"] == f"{target}/{run_name(run_folder(tmp_path.name))}/checkpoint-10"
    (output / JOBS).write_text(json.dumps([{"name": "first"}, {"name": "llama-sft"}]))
    assert facts("export", output, target)["uri"] == f"{target}/llama-sft/checkpoint-10"
    own = tmp_path / "runs" / "nightly" / "output"
    own.parent.mkdir(parents=True)
    output.rename(own)
    assert facts("export", own, target)["uri"] == f"{target}/nightly/checkpoint-10"


@pytest.mark.medium
def test_another_checkpoint_of_the_step_is_published_only_if_that_is_asked_for(output: Path, target: str) -> None:
    uri = facts("export", output, target)["uri"]
    (output / "checkpoint-10" / "config.json").write_text("{}")
    assert facts("export", output, target)["uri"] == f"{uri}.2"  # it has more files: a rank was late
    (output / "checkpoint-10" / "config.json").write_text('{"a": 1}')
    refused = run("export", output, target)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "config.json differs" in refused.stderr
    assert facts("export", output, target, "--supersede")["uri"] == f"{uri}.3"


def test_weights_only_leaves_states_behind(output: Path, target: str) -> None:
    for name in ("rng_state.pth", "optimizer.pt", "scheduler.pt"):
        with zipfile.ZipFile(output / "checkpoint-10" / name, "w") as archive:
            archive.writestr("archive/data.pkl", b"x")
    assert facts("export", output, target, "--weights-only")["files"] == 2
    assert facts("export", output, f"{target}/whole")["files"] == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("export", "OUTPUT", "ftp://bucket/x"), 2, "the scheme 'ftp' is not supported yet"),
        (("export", "OUTPUT", "hf://org/name"), 1, "hf:// is not a store"),
        (("export", "OUTPUT", "TARGET", "--step", "7"), 1, "has no checkpoint of step 7; available steps: 5, 10, 15"),
        (("export", "OUTPUT", "TARGET", "--step", "15"), 1, "checkpoint-15 is incomplete: trainer_state.json"),
        (("export", "/nothing", "TARGET"), 1, "no complete checkpoint in /nothing"),
        (("verify", "TARGET/checkpoint-10"), 1, "contains no export: it has no manifest.json"),
        (("verify", "nothing"), 1, "/nothing contains no export: it has no manifest.json"),
        (("restore", "TARGET/checkpoint-10", "OUTPUT/new"), 1, "contains no export"),
        (("restore", "TARGET/checkpoint-10", "s3://bucket/back"), 2, "s3://bucket/back: expected a folder of this machine"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    output: Path, target: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run(*(argument.replace("OUTPUT", str(output)).replace("TARGET", target) for argument in arguments), "-o", "json")
    assert result.exit_code == code
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_exports_can_be_written_as_paths_of_this_machine(tmp_path: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    uri = facts("export", output, "../to", "--run", "r")["uri"]
    assert uri == f"file://{tmp_path}/to/r/checkpoint-10"
    assert facts("verify", "../to/r/checkpoint-10")["uri"] == uri
    assert facts("restore", "../to/r/checkpoint-10", tmp_path / "back")["files"] > 0
    assert facts("restore", uri, f"file://{tmp_path}/again")["folder"] == str(tmp_path / "again")
    assert "checkpoint-10" in run("checkpoints", "list", "../to/r").stdout


def test_a_damaged_export_fails_to_verify_and_to_come_back(tmp_path: Path, output: Path, target: str) -> None:
    uri = facts("export", output, target)["uri"]
    (state,) = (tmp_path / "exports").rglob("trainer_state.json")
    state.write_bytes(b"{}")
    verified = run("verify", uri)
    assert (verified.exit_code, verified.stdout) == (1, "")
    assert verified.stderr == f"{uri} is corrupt: trainer_state.json has 2 bytes instead of 19\n"
    assert run("restore", uri, tmp_path / "back").exit_code == 1
    assert not (tmp_path / "back").exists()


def test_another_digest_is_refused(tmp_path: Path, output: Path, target: str) -> None:
    uri = facts("export", output, target)["uri"]
    for command in (("verify", uri), ("restore", uri, tmp_path / "back")):
        result = run(*command, "--digest", "sha256:0")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "expected sha256:0" in result.stderr


def test_a_full_disk_is_one_line(output: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=2**20))
    result = run("export", output, target)
    assert result.exit_code == 1
    assert "needed, " in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.medium
@pytest.mark.parametrize("ends_by", ["signal", "file"])
def test_a_watch_exports_until_it_is_told_that_training_has_ended(
    tmp_path: Path, output: Path, target: str, ends_by: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "trainwright.cli",
        "export",
        output,
        target,
        "--run",
        "r",
        "--watch",
        "--poll-interval",
        "0.2",
    ]
    stop = tmp_path / "stop"
    with subprocess.Popen([*command, "--stop-file", stop, "--keep-last", "1"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline(), process.stdout.readline()]
        assert [f"{target}/r/checkpoint-{step} step={step} " in line for step, line in zip((5, 10), printed, strict=True)]
        (output / "checkpoint-15" / "trainer_state.json").write_text(json.dumps({"global_step": 15}))
        if ends_by == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            stop.touch()
        assert f"{target}/r/checkpoint-15" in process.stdout.read()
        assert process.wait(60) == 0
    listed = facts_list("checkpoints", "list", f"{target}/r")
    assert [each["name"] for each in listed] == ["checkpoint-15"]


def facts_list(*arguments: object) -> list[dict[str, Any]]:
    printed: list[dict[str, Any]] = json.loads(run(*arguments, "-o", "json").stdout)
    return printed


def test_exports_are_listed_compared_protected_deleted_and_promoted(output: Path, target: str) -> None:
    first, second = (facts("export", output, target, "--run", "r", "--step", step)["uri"] for step in (5, 10))
    runs = f"{target}/r"
    (header, *rows) = run("checkpoints", "list", runs).stdout.splitlines()
    assert header.split() == ["NAME", "STEP", "PUBLISHED", "SIZE", "EVAL_LOSS", "PROTECTED"]
    assert [row.split()[:2] for row in rows] == [["checkpoint-5", "5"], ["checkpoint-10", "10"]]
    compared = run("checkpoints", "diff", first, second)
    assert (compared.exit_code, compared.stdout.splitlines()[0]) == (1, "changed   trainer_state.json")
    assert run("checkpoints", "diff", first, first).exit_code == 0
    assert run("checkpoints", "pin", first, "--reason", "paper").stdout == "checkpoint-5 is pinned (paper)\n"
    assert run("checkpoints", "prune", runs, "--keep-last", 1, "--yes").stdout == "0 of 2 exports, 0.0 MB\n"
    assert run("checkpoints", "unpin", first).exit_code == 0
    told = run("checkpoints", "prune", runs, "--keep-last", 1).stdout.splitlines()
    assert told == ["would delete checkpoint-5", "1 of 2 exports, 0.0 MB; add --yes"]
    assert run("checkpoints", "prune", runs).exit_code == 2
    promoted = facts("checkpoints", "promote", first, "--expected", "")
    assert (promoted["alias"], promoted["current"]["uri"]) == ("champion", first)
    refused = run("checkpoints", "promote", second, "--expected", "")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    facts("checkpoints", "promote", second, "--reason", "better")
    assert facts("checkpoints", "rollback", target)["current"]["uri"] == first
    assert run("checkpoints", "alias", target).stdout.splitlines()[1].split()[0] == "champion"
    assert run("checkpoints", "alias", target, "--alias", "challenger").exit_code == 1
    assert facts("checkpoints", "gc", runs) == {"dry_run": True, "files": [], "bytes": 0}
