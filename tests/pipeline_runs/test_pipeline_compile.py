"""`trainwright pipeline list` and `compile`: shipped pipelines, functions of modules and files, and what goes wrong in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pipeline_commands import Run, has_ended

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline, RunTimeout
from trainwright.pipeline_runs.source import run_program

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def images(documents: list[dict]) -> set[str]:
    executors = documents[0]["deploymentSpec"]["executors"].values()
    return {executor["container"]["image"] for executor in executors}


def test_the_shipped_pipelines_are_listed_with_their_parameters(run: Run) -> None:
    result = run("pipeline", "list", "-o", "json")
    assert result.exit_code == 0, result.output
    listed = {each["name"]: each for each in json.loads(result.stdout)}
    assert set(listed) >= {path.parent.name for path in (ROOT / "pipelines").glob("*/pipeline.py")}
    parameters = {each["name"]: each for each in listed["finetune"]["parameters"]}
    assert parameters["dataset_uri"]["is_required"]
    assert (parameters["num_nodes"]["type"], parameters["training"]["type"]) == ("int", "dict")
    assert parameters["store_secret"]["default"] == "trainwright-store"
    table = run("pipeline", "list").stdout.splitlines()
    assert table[0].split() == ["PIPELINE", "PARAMETER", "TYPE", "DEFAULT", "DESCRIPTION"]
    assert any(line.split()[:4] == ["finetune", "dataset_uri", "str", "(required)"] for line in table)


def test_one_pipeline_is_listed_with_its_whole_texts(run: Run, tiny_yaml: str) -> None:
    table = run("pipeline", "list", "sweep").stdout.splitlines()
    assert {line.split()[0] for line in table[1:]} == {"sweep"}
    assert not [line for line in table if line.endswith("...")]
    assert [each["name"] for each in json.loads(run("pipeline", "list", tiny_yaml, "-o", "json").stdout)] == [tiny_yaml]
    refused = run("pipeline", "list", "swep")
    assert (refused.exit_code, refused.stderr) == (2, "swep: no such pipeline (did you mean sweep?)\n")


def test_kfp_loads_the_compiled_pipeline(run: Run, tmp_path: Path) -> None:
    from kfp import components

    file = tmp_path / "finetune.yaml"
    result = run("pipeline", "compile", "finetune", "--to", str(file))
    assert result.exit_code == 0, result.output
    loaded = components.load_component_from_file(str(file))
    assert loaded.name == "finetune"
    assert "dataset_uri" in loaded.component_spec.inputs
    assert CompiledPipeline.parse(file.read_text("utf-8"), "again").digest in result.stdout


def test_compile_matches_the_compiler_of_kfp(run: Run, tiny_source: Path, tmp_path: Path) -> None:
    """kfp's own compiler, in a process of its own; the texts differ where kfp leaves a text that looks like a number."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from kfp import compiler; import tiny_pipeline\n"
        "compiler.Compiler().compile(tiny_pipeline.tiny, sys.argv[2])"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tiny_source.parent), str(tmp_path / "kfp.yaml")]
    subprocess.run(command, check=True)
    ours = run("pipeline", "compile", str(tiny_source)).stdout
    theirs = (tmp_path / "kfp.yaml").read_text("utf-8")
    assert list(yaml.safe_load_all(ours)) == list(yaml.safe_load_all(theirs))
    assert ours.startswith("# PIPELINE DEFINITION\n# Name: tiny\n")
    assert "defaultValue: '2e-4'" in ours
    assert "defaultValue: 2e-4" in theirs


def test_image_and_parallelism_are_set_when_it_is_compiled(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also although the components were imported in this process before, with others."""
    import trainwright.components

    assert trainwright.components.train
    chosen = run("pipeline", "compile", "finetune", "--image", "registry.example.com/me:2")
    documents = list(yaml.safe_load_all(chosen.stdout))
    assert images(documents) == {"registry.example.com/me:2"}
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", "from.environment/x:1")
    assert images(list(yaml.safe_load_all(run("pipeline", "compile", "finetune").stdout))) == {"from.environment/x:1"}
    assert "parallelismLimit: 7" in run("pipeline", "compile", "sweep", "--parallelism", "7").stdout


def test_the_same_pipeline_has_the_same_digest_in_every_process(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        digests.add(run("pipeline", "compile", "finetune", "--to", str(tmp_path / "x.yaml")).stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("form", ["{file}", "{file}:tiny", "tiny_pipeline:tiny"])
def test_functions_of_files_and_modules_are_compiled(
    run: Run, tiny_source: Path, tiny: CompiledPipeline, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.chdir(tiny_source.parent)
    result = run("pipeline", "compile", form.format(file=tiny_source))
    assert result.exit_code == 0, result.output
    assert CompiledPipeline.parse(result.stdout, form).digest == tiny.digest


def test_a_compiled_file_is_taken_as_it_is(run: Run, tiny: CompiledPipeline, tiny_yaml: str) -> None:
    assert run("pipeline", "compile", tiny_yaml).stdout == tiny.text


BROKEN = {
    "syntax": ("def f(:\n", "cannot be imported: SyntaxError: invalid syntax (broken.py, line 1)"),
    "import": (
        "import no_such_module\n",
        "cannot be imported: ModuleNotFoundError: No module named 'no_such_module' (broken.py, line 1)",
    ),
    "library": ("import yaml\nyaml.safe_load('{')\n", "(broken.py, line 2)"),
    "setting": (
        "from trainwright.components import train_function\n@train_function(limits={'restarts': 'x'})\ndef fit(): ...\n",
        "cannot be imported: InvalidSettings: train_function: fit: limits.restarts: expected a whole number (broken.py, line 2)",
    ),
    "exit": ("import sys\nsys.exit(3)\n", "cannot be imported: SystemExit: 3 (broken.py, line 2)"),
    "none": ("x = 1\n", "has no functions with @dsl.pipeline"),
    "kill": (
        "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n",
        "ended with signal 9: last words",
    ),
    "two": (
        "from kfp import dsl\n@dsl.component(base_image='x')\ndef c():\n    pass\n"
        "@dsl.pipeline\ndef a():\n    c()\n@dsl.pipeline\ndef b():\n    c()\n",
        "has 2 functions with @dsl.pipeline: name one, as {file}:a; it has a, b",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_errors_in_pipeline_code_are_one_line(run: Run, tmp_path: Path, case: str) -> None:
    code, said = BROKEN[case]
    file = tmp_path / "broken.py"
    file.write_text(code, "utf-8")
    result = run("pipeline", "compile", str(file))
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert said.format(file=file) in line
    assert "Traceback" not in line


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("finetun", "no such pipeline (did you mean finetune?)"),
        ("no_such_module:f", "cannot be imported"),
        ("json:dumps", "dumps is not a pipeline of it"),
        ("missing.py", "missing.py: no such file"),
        ("missing.yaml", "missing.yaml: No such file"),
        ("a b", "is not a pipeline: expected NAME of a shipped pipeline"),
        ("", "is not a pipeline"),
    ],
)
def test_unknown_sources_are_refused(run: Run, source: str, said: str) -> None:
    result = run("pipeline", "compile", source)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: b",
        "[1]",
        "a: &a [*a]",
        "pipelineInfo: {name: x}\nroot: [1]\ndeploymentSpec: {a: 1}\nschemaVersion: 2.1.0",
        "a\n---\nb\n---\nc",
    ],
)
def test_a_file_that_is_no_compiled_pipeline_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text, "utf-8")
    result = run("pipeline", "compile", str(file))
    assert (result.exit_code, "x.yaml" in result.stderr) == (2, True), result.output


def test_a_file_that_cannot_be_written_is_named(run: Run, tiny_yaml: str, tmp_path: Path) -> None:
    result = run("pipeline", "compile", tiny_yaml, "-O", str(tmp_path / "missing" / "x.yaml"))
    assert (result.exit_code, "x.yaml: No such file or directory" in result.stderr) == (2, True)


def test_code_that_does_not_end_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    file, pid_file = tmp_path / "endless.py", tmp_path / "pid"
    file.write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n",
        "utf-8",
    )
    with pytest.raises(RunTimeout, match="did not end within 4 s"):
        run_program({"command": "compile", "source": str(file)}, environment={}, timeout_seconds=4)
    assert has_ended(pid_file.read_text())


def test_without_kfp_it_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch, tiny_yaml: str) -> None:
    """`compile` needs the compiler, `run --host` the client."""
    monkeypatch.setattr("trainwright.pipeline_runs.source.importlib.util.find_spec", lambda _: None)
    monkeypatch.setitem(sys.modules, "kfp", None)
    for words in (("compile", "finetune"), ("list",), ("run", tiny_yaml, "--param", "a=1", "--host", "http://127.0.0.1:1")):
        result = run("pipeline", *words)
        assert result.exit_code == 1
        [line] = result.stderr.splitlines()
        assert line.endswith("pip install 'trainwright[kfp]'")


def test_user_code_does_not_run_in_the_process_of_the_command(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import os\nraise ValueError(os.getpid())\n", "utf-8")
    assert str(os.getpid()) not in run("pipeline", "compile", str(file)).stderr
    with pytest.raises(BadPipeline, match="ValueError"):
        run_program({"command": "compile", "source": str(file)}, environment={}, timeout_seconds=60)
