"""The process of one task: its arguments, its outputs, and what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from trainwright.pipeline_runs.local_step import executor_input, imported, outputs_of, run_step
from trainwright.pipeline_runs.local_values import BadValue

pytestmark = pytest.mark.medium
TEXT = {"parameterType": "STRING"}
COMPONENT = {"inputDefinitions": {"parameters": {"a": TEXT}}, "outputDefinitions": {"parameters": {"Output": TEXT}}}


def container(*body: str) -> dict[str, Any]:
    program = "import os, subprocess, sys\n\n\ndef do(a: str) -> str:\n" + "".join(f"    {line}\n" for line in body)
    script = '"$program_path/ephemeral_component.py" kfp.dsl.executor_main'
    return {"command": ["sh", "-ec", script, program], "args": ["--executor_input", "{{$}}", "--function_to_execute", "do"]}


def run(folder: Path, value: str, *body: str, **environment: str) -> tuple[int, Any, list[str]]:
    given, lines = executor_input(COMPONENT, {"a": value}, folder / "do"), list[str]()
    running: set[subprocess.Popen[bytes]] = set()
    code = run_step(container(*body), given, environment, lines.append, running)
    assert not running
    output = outputs_of(COMPONENT, given)["Output"] if code == 0 else None
    return code, output, [line for line in lines if "KFP Executor" not in line]


def test_inputs_of_any_size_arrive_and_are_not_among_the_arguments(tmp_path: Path) -> None:
    secret = "hf_secret" * 30_000
    body = ["words = open('/proc/self/cmdline').read() if os.path.exists('/proc') else ''", "assert 'hf_secret' not in words"]
    code, output, lines = run(
        tmp_path, secret, *body, "assert sys.argv[1] == '--component_module_path'", "return a + os.environ['B']", B="!"
    )
    assert (code, output) == (0, secret + "!"), lines


def test_try_begins_without_the_outputs_of_the_one_before(tmp_path: Path) -> None:
    stale = tmp_path / "do" / "Output"
    body = [f"os.makedirs({str(stale.parent)!r})", f"open({str(stale)!r}, 'w').write('stale')", "raise SystemExit(3)"]
    assert run(tmp_path, "", *body)[0] == 3
    assert stale.exists()
    with pytest.raises(BadValue, match="has ended without the output 'Output'"):
        run(tmp_path, "", "os._exit(0)")
    assert not stale.exists()


def test_try_that_cannot_begin_afresh_fails(tmp_path: Path) -> None:
    (tmp_path / "do").symlink_to(tmp_path)
    with pytest.raises(OSError, match="symbolic link"):
        run(tmp_path, "", "return ''")


def test_process_that_a_step_leaves_behind_does_not_hold_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.pipeline_runs.local_step._READER_SECONDS", 0.1)
    began = time.monotonic()
    code, output, lines = run(
        tmp_path, "", "left = subprocess.Popen(['sleep', '60'])", "print(left.pid, flush=True)", "return 'done'"
    )
    subprocess.run(["kill", next(filter(str.isdigit, lines))], check=True)
    assert (code, output) == (0, "done")
    assert time.monotonic() - began < 50


def test_variable_that_no_process_can_have_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="null byte"):
        run(tmp_path, "", "return ''", B="a\0b")


def test_imported_file_is_a_path_and_its_metadata_has_integers() -> None:
    importer = {
        "artifactUri": {"runtimeParameter": "uri"},
        "typeSchema": {},
        "metadata": {"n": 3.0, "of": "{{$.inputs.parameters['m']}}"},
    }
    (artifact,) = imported(importer, {"uri": "file:///a%20b", "m": "x"})["artifact"]
    assert (artifact["uri"], json.dumps(artifact["metadata"])) == ("/a b", '{"n": 3, "of": "x"}')
