"""`trainwright pipeline run --local`: steps as processes of this environment, into which nothing is installed."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_commands import Run, has_ended
from support.waiting import eventually

from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.local_run import check_runnable_here
from trainwright.pipeline_runs.source import compile_pipeline

pytestmark = pytest.mark.slow
SLOW = """
from kfp import dsl


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def wait(folder: str):
    import os
    import signal
    import sys
    import time

    def stop(*_):
        open(folder + "/stopped", "w").close()
        sys.exit(3)

    signal.signal(signal.SIGTERM, stop)
    with open(folder + "/pid", "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)


@dsl.pipeline(name="slow")
def slow(folder: str):
    wait(folder=folder)
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_pipeline_runs_here_with_parameters_of_all_types(run: Run, tiny_yaml: str, tmp_path: Path) -> None:
    given = ("--param", "a=3", "--param", 'words=["x"]', "--param", 'options={"deep": {"a": [1]}}', "--param", "loud=true")
    result = run("pipeline", "run", tiny_yaml, "--local", *given, "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["state"] == "SUCCEEDED"
    assert document["outputs"] == {"Output": "3.5 ['x'] True"}
    assert Path(document["artifacts"]).parent == tmp_path / "local_outputs"
    assert Path(document["artifacts"], "add", "executor_output.json").exists()
    assert "Task 'add' finished with status SUCCESS" in result.stderr


def test_pip_does_not_run(tiny_source: Path, tmp_path: Path) -> None:
    """With a python whose pip would be noticed, from the process of the command on."""
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "pip").mkdir()
    (trap / "pip" / "__init__.py").write_text("", "utf-8")
    (trap / "pip" / "__main__.py").write_text(f"open({str(tmp_path / 'pip-ran')!r}, 'w').close()", "utf-8")
    command = [sys.executable, "-m", "trainwright.cli", "pipeline", "run", str(tiny_source), "--local", "--param", "a=1"]
    environment = {**os.environ, "PYTHONPATH": str(trap)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "pip-ran").exists()
    subprocess.run([sys.executable, "-m", "pip"], env=environment, check=True)
    assert (tmp_path / "pip-ran").exists()


def test_variables_of_a_training_task_reach_its_step_as_task_config(run: Run, tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "from kfp import dsl, kubernetes\n"
        "FIELDS = [dsl.TaskConfigPassthrough(field=dsl.TaskConfigField.ENV, apply_to_task=True), dsl.TaskConfigField.RESOURCES]\n"
        "@dsl.component(base_image='python:3.11', install_kfp_package=False, task_config_passthroughs=FIELDS)\n"
        "def show(task_config: dsl.TaskConfig = None) -> dict:\n"
        "    return {'env': task_config.env, 'resources': task_config.resources}\n"
        "@dsl.pipeline(name='settings')\ndef settings() -> dict:\n"
        "    task = show().set_env_variable('TASKVAR', '2').set_cpu_limit('1')\n"
        "    kubernetes.use_secret_as_env(task, secret_name='hub', secret_key_to_env={'token': 'HF_TOKEN'})\n"
        "    return task.output\n",
        "utf-8",
    )
    result = run("pipeline", "run", "settings.py", "--local", "-o", "json")
    assert result.exit_code == 0, result.output
    output = json.loads(result.stdout)["outputs"]["Output"]
    assert output["env"][0] == {"name": "TASKVAR", "value": "2"}
    assert output["resources"] == {"limits": {"cpu": "1"}}
    assert "warning: show: HF_TOKEN of the Secret hub: set in the training, but not in the step" in result.stderr


def test_condition_on_a_named_output_runs_its_branch(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conditions.py").write_text(
        "from typing import NamedTuple\nfrom kfp import dsl\n"
        "@dsl.component(base_image='python:3.11', install_kfp_package=False)\n"
        "def fit() -> NamedTuple('Figures', [('loss', float), ('steps', int)]):\n    return 0.25, 3\n"
        "@dsl.component(base_image='python:3.11', install_kfp_package=False)\n"
        "def say(text: str):\n    print('said ' + text)\n"
        "@dsl.pipeline(name='conditions')\ndef conditions():\n"
        "    fitted = fit()\n"
        "    with dsl.If(fitted.outputs['loss'] < 0.5):\n"
        "        with dsl.If(fitted.outputs['steps'] == 3):\n"
        "            say(text='inner')\n"
        "    with dsl.Else():\n"
        "        say(text='other')\n",
        "utf-8",
    )
    result = run("pipeline", "run", "conditions.py", "--local")
    assert result.exit_code == 0, result.output
    assert "said inner" in result.output
    assert "said other" not in result.output


def test_a_failed_step_is_a_failed_run(run: Run, tiny_yaml: str) -> None:
    result = run("pipeline", "run", tiny_yaml, "--local", "--param", "a=3", "--param", 'options={"fail": true}', "-o", "json")
    assert result.exit_code == 10
    document = json.loads(result.stdout)
    assert (document["state"], document["outputs"]) == ("FAILED", {})
    failures = document["failed_tasks"]
    assert {failed["name"] for failed in failures} <= {"describe", "describe-2"}
    assert document["message"] == f"task {failures[0]['name']} failed: ValueError: asked to fail"
    for failed in failures:
        assert (failed["state"], failed["message"], failed["pod"]) == ("FAILED", "ValueError: asked to fail", "")
        assert failed["log"][-1] == "ValueError: asked to fail"
    assert "\x1b" not in result.output
    assert "asked to fail" in result.stderr


def test_parameters_are_refused_before_a_step_starts(run: Run, tiny_yaml: str, tmp_path: Path) -> None:
    result = run("pipeline", "run", tiny_yaml, "--local", "--param", "a=x", "--param", "c=1")
    assert result.exit_code == 2
    assert "a: expected int, got 'x'" in result.stderr.splitlines()
    assert not (tmp_path / "local_outputs").exists()


def test_options_of_a_server_are_refused(run: Run, tiny_yaml: str) -> None:
    result = run("pipeline", "run", tiny_yaml, "--local", "--param", "a=1", "--host", "http://127.0.0.1", "--run-name", "x")
    assert (result.exit_code, "--host, --run-name: not with --local" in result.stderr) == (2, True)


def test_the_pipelines_shipped_here_can_run_here() -> None:
    check_runnable_here(compile_pipeline("finetune"))


def test_packages_that_are_missing_and_containers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "mixed.py"
    file.write_text(
        "from kfp import dsl\n"
        "@dsl.component(base_image='x', packages_to_install=['pyyaml>=6', 'no-such-package==1.0', 'git+https://example.com/x'])\n"
        "def packages():\n    pass\n"
        "@dsl.container_component\ndef container():\n    return dsl.ContainerSpec(image='x', command=['true'])\n"
        "@dsl.pipeline(name='mixed')\ndef mixed():\n    packages()\n    container()\n",
        "utf-8",
    )
    with pytest.raises(BadPipeline) as caught:
        check_runnable_here(compile_pipeline(str(file)))
    assert "container is a program of an image, and not a lightweight Python component" in str(caught.value)
    assert "packages installs no-such-package==1.0, git+https://example.com/x; install" in str(caught.value)


@pytest.mark.parametrize("name", ["../../evil", "for-loop-1-iteration-0", "A"])
def test_names_that_kfp_does_not_make_are_refused(tiny: CompiledPipeline, name: str) -> None:
    documents = copy.deepcopy(tiny.documents)
    tasks = documents[0]["root"]["dag"]["tasks"]
    tasks[name] = tasks.pop("add")
    with pytest.raises(BadPipeline, match="is malformed"):
        check_runnable_here(CompiledPipeline(documents))


@pytest.mark.parametrize("how", ["timeout", "SIGINT", "SIGTERM"])
def test_a_run_that_is_stopped_stops_its_step_with_a_signal(tmp_path: Path, how: str) -> None:
    """So that a step of ours can suspend its TrainJob."""
    (tmp_path / "slow.py").write_text(SLOW, "utf-8")
    command = [sys.executable, "-m", "trainwright.cli", "pipeline", "run", "slow.py", "--local", "--param", f"folder={tmp_path}"]
    timeout = ["--timeout", "8"] if how == "timeout" else []
    process = subprocess.Popen([*command, *timeout], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), 60, "the step has started")
    if how != "timeout":
        process.send_signal(signal.Signals[how])
    _, error = process.communicate(timeout=60)
    assert process.returncode == (23 if how == "timeout" else 130), error
    assert (tmp_path / "stopped").exists()
    assert has_ended((tmp_path / "pid").read_text())
