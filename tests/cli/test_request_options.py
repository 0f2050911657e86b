"""Settings on the command line: how they are written, and how wrong ones are answered; no cluster is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.api.errors import BadRequest
from trainwright.cli.request_options import in_options, setting_values
from trainwright.jobs.code.function_source import NamedSource

Run = Callable[..., Any]
CLIENT = ("--dry-run", "client")
TOKEN = "hf_" + "aB3" * 10


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(
        "import os\n\u000c\nUSED = 1\n@task.trainjob(\n    image='x',\n)\ndef train(n: int = 1):\n    return {'n': n}\n\n"
        "def uses():\n    return USED\n\nasync def waits(): ...\n"
    )
    return path


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"command": "train.py --lr 0.1 'a b'"}, {"command": ["train.py", "--lr", "0.1", "a b"]}),
        ({"command": '["a b", "c"]'}, {"command": ["a b", "c"]}),
        ({"packages_to_install": "a b>=2"}, {"packages_to_install": ["a", "b>=2"]}),
        ({"env": ["A=1", "B=x=y", '{"C": "3"}']}, {"env": {"A": "1", "B": "x=y", "C": "3"}}),
        (
            {"func_args": ["n=3", "x=1e-4", "t=true", "s=a b", 'l=[1, "b"]', "e=", "p=it: is {x}"]},
            {"func_args": {"n": 3, "x": 1e-4, "t": True, "s": "a b", "l": [1, "b"], "e": "", "p": "it: is {x}"}},
        ),
        (
            {"settings": ["epochs=2", 'peft_config={"lora_rank": 8}', "dtype=bf16", "day=2026-11-22"]},
            {"settings": {"epochs": 2, "peft_config": {"lora_rank": 8}, "dtype": "bf16", "day": "2026-11-22"}},
        ),
        ({"resources_per_node": ["nvidia.com/gpu=1"]}, {"resources_per_node": {"nvidia.com/gpu": "1"}}),
        ({"runtime": "a", "num_nodes": 2}, {"runtime": "a", "num_nodes": 2}),
    ],
)
def test_how_settings_are_written(given: dict[str, Any], values: dict[str, Any]) -> None:
    assert setting_values(given) == values


def test_a_function_of_a_file(program: Path) -> None:
    assert setting_values({"func": f"{program}:train"}) == {
        "func": NamedSource(name="train", source="def train(n: int = 1):\n    return {'n': n}\n")
    }


@pytest.mark.parametrize(
    ("func", "words"),
    [
        ("train", "'train' is not of the form FILE.py:NAME"),
        ("{}", "is not of the form FILE.py:NAME|defines no function|No such file"),
        ("{}:nothing", "defines no function 'nothing'"),
        ("{}:USED", "defines no function 'USED'"),
        ("{}:uses", "uses USED from outside"),
        ("{}:waits", "waits is async"),
        ("{}.missing:train", "program.py.missing: No such file or directory"),
        ("{}/..:train", "Is a directory|Not a directory"),
        ("{}.bad:train", "program.py.bad is not Python: "),
        ("{}.binary:train", "codec can't decode"),
    ],
)
def test_func_option_refuses_anything_but_a_function_of_a_file(program: Path, func: str, words: str) -> None:
    program.with_name("program.py.bad").write_text("def train(:")
    program.with_name("program.py.binary").write_bytes(b"\xff")
    with pytest.raises(BadRequest, match=f"^--func: .*({words})"):
        setting_values({"func": func.replace("{}", str(program))})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--num-nodes", "-1"), "num_nodes: expected at least 1"),
        (("--runtime-kind", "Runtime"), "runtime_kind: expected ClusterTrainingRuntime or TrainingRuntime"),
        (("--workspace", "claim"), "workspace: 'claim' is not of the form pvc://CLAIM"),
        (("--env", "A"), "--env: 'A' is neither KEY=VALUE nor a JSON object"),
        (("--env", "{A: ["), "--env: neither JSON nor YAML: "),
        (("--command", "'"), "--command: No closing quotation"),
        (("--tolerations", "x"), "tolerations: expected a list"),
        (("--func-args", "n=1"), "func_args: requires func"),
        (("--code", "/x"), "command: required with code"),
        (("--builtin", "sft", "--args", "x"), "args: cannot be combined with the builtin trainer 'sft'"),
        (("--func", "x"), "--func: 'x' is not of the form FILE.py:NAME"),
        (("--env", f"A={TOKEN}"), "env.A: looks like a Hugging Face token; "),
        (("--code", "git+https://me:hunter2@h/a@main", "--command", "a"), "code: looks like a URI with a password"),
        (("-f", "missing.yaml", "--run-id", "x"), "missing.yaml"),
        ((), "nothing to submit: use -f FILE, or settings such as --runtime, --code or --func"),
    ],
)
def test_a_wrong_value_is_one_line_and_exit_code_2(run: Run, options: tuple[str, ...], line: str) -> None:
    result = run("submit", *options, *CLIENT)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert line in result.stderr
    assert "Value error" not in result.stderr
    assert TOKEN not in result.output
    assert "hunter2" not in result.output


def test_every_wrong_value_has_a_line(run: Run) -> None:
    result = run("submit", "--num-nodes", "-1", "--logs-of", "0", "--image", "a b", *CLIENT)
    assert result.exit_code == 2
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["image", "num_nodes"]


def test_a_step_is_one_trainjob(run: Run, write: Any, trainjob: Any) -> None:
    result = run("submit", "-f", write(trainjob("a"), trainjob("b")), "--run-id", "x", *CLIENT)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "expected one TrainJob, found 2 documents" in result.stderr
    result = run("submit", "-f", write(trainjob("a")), "--image", "b", *CLIENT)
    assert result.exit_code == 2
    assert "image: cannot be combined with manifest; set it in the manifest" in result.stderr


def test_a_client_dry_run_asks_nobody(run: Run, program: Path, write: Any, trainjob: Any) -> None:
    for options in (("--func", f"{program}:train", "--func-args", "n=3"), ("-f", write(trainjob("a"))), ("--runtime", "trl-sft")):
        result = run("submit", *options, "--run-id", "x", *CLIENT)
        assert (result.exit_code, result.stdout) == (0, "run x: the request is valid (client dry run)\n")


def test_a_user_without_a_name_gets_a_run_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1001")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert run("submit", "--runtime", "trl-sft", *CLIENT).stdout.startswith("run cli-2")


def test_the_help_lists_every_setting(run: Run) -> None:
    words = run("submit", "--help").stdout
    assert "--func-args" in words
    assert json.dumps("x") not in words


def test_unknown_submission_mode_is_bad_input_before_any_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = run("submit", "--runtime", "r", "--command", "a", "--submission-mode", "wrong", *CLIENT)
    assert (chosen.exit_code, "Value error" in chosen.stderr) == (2, False)
    assert "'wrong' is not one of " in chosen.stderr
    monkeypatch.setenv("TRAINWRIGHT_SUBMISSION_MODE", "wrong")
    for command in (("submit", "--runtime", "r", "--command", "a", *CLIENT), ("get", "--kubeconfig", "/nothing")):
        found = run(*command)
        assert found.exit_code == 2
        assert "TRAINWRIGHT_SUBMISSION_MODE: 'wrong' is not one of auto, trainjob, jobset, embedded" in found.stderr


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("use builtin=dpo or builtin=kto; or", "use --builtin dpo or --builtin kto; or"),
        ('set resources_per_node={"nvidia.com/gpu": 1}, or', "set --resources-per-node '{\"nvidia.com/gpu\": 1}', or"),
        ('settings={"method": "lora", "cpu": true} to', '--settings \'{"method": "lora", "cpu": true}\' to'),
        ("placement.memory_check=warn submits it; num_nodes=1", "--memory-check warn submits it; --num-nodes 1"),
        ("limits.restarts allows 1; placement.volumes[0].name: Required", "restarts allows 1; volumes[0].name: Required"),
        ("code=git+https://host/repo@v1: no such branch", "code=git+https://host/repo@v1: no such branch"),
        ("pvc://claim?image=a and metadata.labels=b", "pvc://claim?image=a and metadata.labels=b"),
    ],
)
def test_advice_names_options(message: str, shown: str) -> None:
    assert in_options(message) == shown
