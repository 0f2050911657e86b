"""`trainwright export`, `verify` and `restore`: what they print for people and machines, and how they fail."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from trainwright.cli.app import app
from trainwright.storage import transfer
from trainwright.storage.uri import StorageUri


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


def test_a_checkpoint_goes_out_is_verified_and_comes_back(tmp_path: Path, output: Path, target: str) -> None:
    exported = facts("export", output, target, "--source", "run/job")
    assert exported == {
        "uri": f"{target}/checkpoint-10",
        "existed": False,
        "step": 10,
        "files": 2,
        "bytes": 29,
        "digest": exported["digest"],
    }
    common = {name: exported[name] for name in ("step", "files", "bytes", "digest")}
    digest = ("--digest", exported["digest"])
    assert facts("verify", exported["uri"], *digest) == {"uri": exported["uri"], "verified": True, **common}
    assert facts("restore", exported["uri"], tmp_path / "back", *digest) == {"folder": str(tmp_path / "back"), **common}
    assert (tmp_path / "back" / "trainer_state.json").read_bytes() == (
        output / "checkpoint-10" / "trainer_state.json"
    ).read_bytes()
    assert json.loads((tmp_path / "exports" / "checkpoint-10" / "manifest.json").read_bytes())["source"] == "run/job"
    assert facts("export", output, target) == {**exported, "existed": True}
    again = run("restore", exported["uri"], output)
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert "exists and is not empty, and is not this export" in again.stderr


def test_people_get_one_line_for_each_fact(output: Path, target: str) -> None:
    lines = run("export", output, target, "--step", 5).stdout.splitlines()
    assert lines[:3] == [f"uri       {target}/checkpoint-5", "existed   False", "step      5"]
    assert yaml.safe_load(run("verify", f"{target}/checkpoint-5", "-o", "yaml").stdout)["verified"] is True


def test_weights_only_leaves_states_behind(output: Path, target: str) -> None:
    (output / "checkpoint-10" / "rng_state.pth").write_bytes(b"PK\5\6" + b"\0" * 18)
    assert facts("export", output, target, "--weights-only")["files"] == 2
    assert facts("export", output, f"{target}/whole")["files"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("export", "OUTPUT", "exports"), 2, "'exports' is not a URI"),
        (("export", "OUTPUT", "gs://bucket/x"), 2, "the scheme 'gs' is not supported yet"),
        (("export", "OUTPUT", "hf://org/name"), 1, "exports to hf:// are not supported yet"),
        (("export", "OUTPUT", "TARGET", "--step", "7"), 1, "has no checkpoint of step 7; available steps: 5, 10, 15"),
        (("export", "OUTPUT", "TARGET", "--step", "15"), 1, "checkpoint-15 is incomplete: trainer_state.json"),
        (("export", "/nothing", "TARGET"), 1, "no complete checkpoint in /nothing"),
        (("verify", "TARGET/checkpoint-10"), 1, "contains no export: it has no manifest.json"),
        (("verify", "nothing"), 2, "'nothing' is not a URI"),
        (("restore", "TARGET/checkpoint-10", "OUTPUT/new"), 1, "contains no export"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    output: Path, target: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run(*(argument.replace("OUTPUT", str(output)).replace("TARGET", target) for argument in arguments), "-o", "json")
    assert result.exit_code == code
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_damaged_export_fails_to_verify_and_to_come_back(tmp_path: Path, output: Path, target: str) -> None:
    uri = facts("export", output, target)["uri"]
    (tmp_path / "exports" / "checkpoint-10" / "trainer_state.json").write_bytes(b"{}")
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
    monkeypatch.setattr(transfer, "_HEADROOM", 2**80)
    result = run("export", output, target)
    assert result.exit_code == 1
    assert "needed, " in result.stderr
    assert result.stderr.count("\n") == 1
