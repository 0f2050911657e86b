"""`trainwright pipeline run --host`: started once, followed to its end, and what failed is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import cluster_in_memory
from pipeline_commands import Run
from servers.kfp_api_server import Fault, KfpApiServer
from servers.kfp_task_details import NodeTree
from servers.recorded_run import listed_run, step_pod
from support.waiting import eventually

from trainwright.api.errors import Forbidden, NotFound
from trainwright.backoff import Backoff
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.pipeline_runs.compiled import CompiledPipeline
from trainwright.pipeline_runs.server import RetryPolicy
from trainwright.pipeline_runs.step_command import step_command

pytestmark = pytest.mark.medium


@pytest.fixture
def start(run: Run, kfp: KfpApiServer, tiny_yaml: str) -> Any:
    return lambda *arguments: run("pipeline", "run", tiny_yaml, "--host", kfp.url, "--param", "a=3", *arguments)


def the_only_run(kfp: KfpApiServer) -> dict[str, Any]:
    [one] = kfp.runs.values()
    return one


def task(name: str, state: str, **fields: Any) -> dict[str, Any]:
    return {"display_name": name, "state": state, "end_time": "2026-11-22T10:00:00Z", **fields}


def with_tasks(state: str, *tasks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"state": state, "run_details": {"task_details": list(tasks)}, **fields}


def tree(**states: list[str]) -> NodeTree:
    """The nodes of a run of the tiny pipeline: tasks with the states of their attempts."""
    nodes = NodeTree()
    for name, attempts in states.items():
        nodes.task(name, attempts)
    return nodes


def test_a_run_is_created_with_its_parameters_and_its_specification(
    kfp: KfpApiServer, start: Any, tiny: CompiledPipeline, tmp_path: Path
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("a: 1\nwords: [x, y]\noptions: {rate: 2.5}\n", "utf-8")
    result = start("--params", str(file), "--experiment", "100% + more", "--run-name", "my run")
    assert result.exit_code == 0, result.output
    one = the_only_run(kfp)
    assert one["runtime_config"]["parameters"] == {"a": 3, "words": ["x", "y"], "options": {"rate": 2.5}}
    assert one["pipeline_spec"] == tiny.submitted_spec
    assert one["display_name"] == "my run"
    assert kfp.experiments[one["experiment_id"]]["display_name"] == "100% + more"
    assert f"{kfp.url}/#/runs/details/{one['run_id']}" in result.stdout
    assert start("--experiment", "100% + more").exit_code == 0
    assert len(kfp.experiments) == 1


def test_kubernetes_settings_go_with_the_specification(kfp: KfpApiServer, run: Run) -> None:
    needed = ("dataset_uri", "model_uri", "export_uri", "workspace")
    given = [word for name in needed for word in ("--param", f"{name}=file:///x")]
    assert run("pipeline", "run", "finetune", "--host", kfp.url, *given).exit_code == 0
    spec = the_only_run(kfp)["pipeline_spec"]
    assert spec["pipeline_spec"]["pipelineInfo"]["name"] == "finetune"
    assert "kubernetes" in spec["platform_spec"]["platforms"]


def test_parameters_come_from_standard_input_too(kfp: KfpApiServer, run: Run, tiny_yaml: str) -> None:
    result = run("pipeline", "run", tiny_yaml, "--host", kfp.url, "--params", "-", stdin='{"a": 7}')
    assert result.exit_code == 0, result.output
    assert the_only_run(kfp)["runtime_config"]["parameters"] == {"a": 7}


def test_a_run_is_followed_to_its_success(kfp: KfpApiServer, start: Any) -> None:
    kfp.run_states = [
        {"state": "PENDING"},
        with_tasks("RUNNING", *tree(add=["RUNNING"]).details),
        with_tasks("RUNNING", *tree(add=["SUCCEEDED"], describe=["RUNNING"]).details),
        with_tasks("SUCCEEDED", *tree(add=["SUCCEEDED"], describe=["SUCCEEDED"]).details),
    ]
    result = start("--wait", "-o", "json")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[1:] == [
        "run PENDING",
        "run RUNNING",
        "add RUNNING",
        "add SUCCEEDED",
        "describe RUNNING",
        "describe SUCCEEDED",
        "run SUCCEEDED",
    ]
    document = json.loads(result.stdout)
    assert (document["state"], document["run_id"]) == ("SUCCEEDED", the_only_run(kfp)["run_id"])
    assert document["failed_tasks"] == []


def test_a_failed_run_names_its_failed_tasks_with_their_messages(kfp: KfpApiServer, start: Any) -> None:
    failed = task("add", "FAILED", error={"code": 2, "message": "ValueError: asked to fail\ntrace"})
    kfp.run_states = [with_tasks("FAILED", failed, task("describe", "FAILED", end_time="2026-11-22T11:00:00Z"))]
    result = start("--wait")
    assert result.exit_code == 10
    assert "  add FAILED: ValueError: asked to fail" in result.stderr.splitlines()
    assert result.stderr.splitlines()[-2:] == [
        "  describe FAILED",
        "    the server names neither a reason nor a pod; the log of its pod says why",
    ]
    assert json.loads(start("--wait", "-o", "json").stdout)["failed_tasks"][0]["name"] == "add"


def test_a_failure_is_reported_once_with_the_last_lines_of_its_log(kfp: KfpApiServer, start: Any) -> None:
    nodes = tree(add=["FAILED", "FAILED"])
    pod = nodes.pods["add/executor(1)"]
    kfp.logs[pod] = "".join(f"line {number}\n" for number in range(100_000)) + "\x1b[31mTrainJobFailed: out of memory\n"
    kfp.run_states = [with_tasks("RUNNING", *tree(add=["RUNNING"]).details), with_tasks("FAILED", *nodes.details)]
    result = start("--wait")
    assert result.exit_code == 10, result.output
    shown = result.stderr.splitlines()
    report = shown[shown.index("add FAILED") + 1 :]
    assert report[1:3] == [f"run {the_only_run(kfp)['run_id']} FAILED", f"  add FAILED (pod {pod})"]
    assert report[-1] == "    | TrainJobFailed: out of memory"
    assert len(report) == 3 + 20
    [failed] = json.loads(start("--wait", "-o", "json").stdout)["failed_tasks"]
    assert (failed["pod"], failed["log"][-1]) == (pod, "TrainJobFailed: out of memory")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedCluster]:
    """The cluster of the runs, to which the kubeconfig leads."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow"}}
    with cluster_in_memory(namespace) as found:
        found.default_namespace = "default"  # type: ignore[attr-defined]
        monkeypatch.setattr("trainwright.pipeline_runs.step_logs.connect", lambda: found)
        yield found


def add_pods(cluster: EmbeddedCluster, kfp: KfpApiServer, *pods: tuple[str, str, str]) -> dict[str, str]:
    """Create the pods of the only run, by their nodes, with phases and logs; returns their names by node."""
    names = {}
    for place, phase, text in pods:
        pod = step_pod(the_only_run(kfp)["run_id"], f"tiny-x1y2z(0).root(0).{place}", phase)
        created = cluster.create(pod)
        cluster.update_status(created | {"status": pod["status"]})
        names[place] = pod["metadata"]["name"]
        kfp.logs[names[place]] = text
    return names


def after_creation(kfp: KfpApiServer, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Do something before the run is first looked at."""
    from trainwright.pipeline_runs import runs

    def follow(*arguments: Any, **options: Any) -> Any:
        act()
        return original(*arguments, **options)

    original = runs.follow_run
    monkeypatch.setattr("trainwright.cli.pipeline_commands.run.follow_run", follow)


def test_two_failed_tasks_of_a_server_that_names_no_pods_are_shown_with_pods_and_logs(
    kfp: KfpApiServer, start: Any, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfp.run_states = [listed_run("tiny-x1y2z", {"add": "FAILED", "describe": "FAILED"})]
    names: dict[str, str] = {}
    pods = (("add(0).executor(0)", "Failed", "no such column\n"), ("describe(0).executor(0)", "Failed", "asked to fail\n"))
    after_creation(kfp, monkeypatch, lambda: names.update(add_pods(cluster, kfp, *pods)))
    result = start("--wait")
    assert result.exit_code == 10, result.output
    add, describe = (names[place] for place, _, _ in pods)
    assert result.stderr.splitlines()[1:] == [
        "add FAILED",
        "describe FAILED",
        "run FAILED",
        f"run {the_only_run(kfp)['run_id']} FAILED",
        f"  add FAILED: exited 1 (pod {add})",
        "    | no such column",
        f"  describe FAILED: exited 1 (pod {describe})",
        "    | asked to fail",
    ]


def test_progress_of_a_training_that_ended_before_the_first_look_is_shown(
    kfp: KfpApiServer, start: Any, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfp.run_states = [listed_run("tiny-x1y2z", {"train": "SUCCEEDED"}, state="SUCCEEDED")]
    progress = "".join(f"Running {percent} % loss=1.5\n" for percent in (20, 40, 60, 80))
    text = f"Starting\n{progress}{{'loss': 2}}\n"
    after_creation(kfp, monkeypatch, lambda: add_pods(cluster, kfp, ("train(0).executor(0)", "Succeeded", text)))
    assert start("--wait").stderr.splitlines()[1:] == [
        "train Running 40 % loss=1.5",
        "train Running 60 % loss=1.5",
        "train Running 80 % loss=1.5",
        "train SUCCEEDED",
        "run SUCCEEDED",
    ]


@pytest.mark.parametrize("allowed", [False, True])
def test_missing_right_to_list_pods_is_named_once(
    kfp: KfpApiServer, start: Any, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    running = listed_run("tiny-x1y2z", {"add": "RUNNING"}, state="RUNNING")
    kfp.run_states = [running, running, listed_run("tiny-x1y2z", {"add": "FAILED"})]

    def refuse(*_: Any, **__: Any) -> Any:
        raise Forbidden("pods is forbidden")

    if not allowed:
        monkeypatch.setattr(cluster, "list", refuse)
    result = start("--wait")
    warnings = [line for line in result.stderr.splitlines() if "warning" in line]
    assert warnings == [
        "warning: not allowed to list pods in the namespace kubeflow and default: tasks are shown as the server lists them, "
        "without their pods, logs and progress"
    ] * (not allowed)
    assert "  add FAILED" in result.stderr.splitlines()
    assert "the server names neither a reason nor a pod" in result.stderr


class PodsOfACluster:
    """What a kubeconfig leads to."""

    default_namespace = "mine"

    def __init__(self, run_id: str, namespace: str):
        self._run_id, self._namespace = run_id, namespace

    def get(self, kind: Any, name: str, namespace: str) -> dict[str, Any]:
        if namespace != self._namespace:
            raise NotFound(name)
        return {"metadata": {"name": name, "namespace": namespace, "labels": {"pipeline/runid": self._run_id}}}

    def logs(self, name: str, namespace: str, **options: Any) -> Iterator[bytes]:
        assert options["container"] == "main"
        yield b"2026-11-25T10:00:00.000000001Z from the cluster\n"


@pytest.mark.parametrize(("fault", "requests"), [(404, 1), (500, 2), ("html", 1), ("gzip", 1)])
@pytest.mark.parametrize("namespace", ["kubeflow", "mine", "elsewhere"])
def test_without_the_servers_log_that_of_the_cluster_is_shown_else_the_command(
    kfp: KfpApiServer, start: Any, monkeypatch: pytest.MonkeyPatch, fault: int | str, requests: int, namespace: str
) -> None:
    nodes = tree(add=["FAILED"], describe=["FAILED"])
    kfp.run_states = [with_tasks("FAILED", *nodes.details)]
    kfp.faults.append(Fault(fault, path="/log$"))
    monkeypatch.setattr(
        "trainwright.pipeline_runs.step_logs.connect", lambda: PodsOfACluster(the_only_run(kfp)["run_id"], namespace)
    )
    shown = start("--wait").stderr
    if namespace == "elsewhere":
        assert f"    its log: kubectl logs -n kubeflow {nodes.pods['add/executor(0)']} -c main" in shown
    else:
        assert shown.count("    | from the cluster") == 2
    assert len(kfp.calls("GET", "/log$")) == requests


def test_a_pod_of_the_same_name_in_another_cluster_is_not_quoted(
    kfp: KfpApiServer, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfp.run_states = [with_tasks("FAILED", *tree(add=["FAILED"]).details)]
    monkeypatch.setattr("trainwright.pipeline_runs.step_logs.connect", lambda: PodsOfACluster("another", "kubeflow"))
    assert "    its log: kubectl logs" in start("--wait").stderr


def test_the_progress_of_a_training_is_shown_live(kfp: KfpApiServer, start: Any) -> None:
    nodes = tree(train=["RUNNING"])
    pod = nodes.pods["train/executor(0)"]
    kfp.logs[pod] = "Starting\n{'loss': 2}\nRunning 40 % (12 s left) loss=1.52\nRunning tests\n"
    kfp.run_states = [
        with_tasks("RUNNING", *nodes.details),
        with_tasks("RUNNING", *nodes.details),
        with_tasks("SUCCEEDED", *tree(train=["SUCCEEDED"]).details),
    ]
    result = start("--wait")
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines()[1:] == [
        "run RUNNING",
        "train RUNNING",
        "train Running 40 % (12 s left) loss=1.52",
        "train SUCCEEDED",
        "run SUCCEEDED",
    ]


@pytest.mark.parametrize("state", ["FAILED", "SKIPPED", "CANCELED"])
def test_any_other_end_than_success_is_a_failure(kfp: KfpApiServer, start: Any, state: str) -> None:
    kfp.run_states = [{"state": state, "state_history": [{"state": "CANCELING"}, {"state": state}]}]
    result = start("--wait")
    assert result.exit_code == 10
    assert f"{state}: it was terminated" in result.stderr


def test_failures_of_the_server_while_waiting_are_waited_out(kfp: KfpApiServer, start: Any) -> None:
    kfp.run_states = [{"state": "RUNNING"}, {"state": "RUNNING"}, {"state": "SUCCEEDED"}]
    kinds: list[int | str] = [500, 502, 503, 429, "drop-before", "slow", 401]
    kfp.faults += [Fault(kind, times=1, method="GET", path="runs/", seconds=1.2) for kind in kinds]
    result = start("--wait")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("waiting on: ") == 1
    assert "run SUCCEEDED" in result.stderr


@pytest.mark.parametrize(("kind", "code"), [(500, 3), (401, 4)])
def test_an_outage_has_a_limit(kfp: KfpApiServer, start: Any, monkeypatch: pytest.MonkeyPatch, kind: int, code: int) -> None:
    monkeypatch.setattr("trainwright.pipeline_runs.runs.OUTAGE", RetryPolicy(1.0, 1.0, Backoff(0.01, 0.05)))
    kfp.faults.append(Fault(kind, method="GET", path="runs/"))
    result = start("--wait")
    assert result.exit_code == code
    assert f"({kind})" in result.stderr.splitlines()[-1]
    assert len(kfp.calls("GET", "runs/")) > 1


def test_retry_after_is_respected(kfp: KfpApiServer, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("trainwright.pipeline_runs.server.time.sleep", waits.append)
    kfp.faults.append(Fault(429, times=1, method="GET", path="runs/", headers={"Retry-After": "4"}))
    assert start("--wait").exit_code == 0
    assert max(waits) == 4


def test_a_run_that_does_not_end_in_time_goes_on(kfp: KfpApiServer, start: Any) -> None:
    kfp.run_states = [{"state": "RUNNING"}]
    result = start("--wait", "--timeout", "0.3")
    assert result.exit_code == 23
    assert "did not end within 0.3 s; it is RUNNING and keeps running" in result.stderr
    assert kfp.calls("POST", "terminate") == []


def test_a_run_that_is_deleted_meanwhile_is_an_error(kfp: KfpApiServer, start: Any) -> None:
    kfp.faults.append(Fault(404, method="GET", path="runs/"))
    result = start("--wait")
    assert (result.exit_code, "deleted while it was waited for" in result.stderr) == (30, True)


@pytest.mark.parametrize("kind", ["drop-after", "slow"])
def test_a_run_whose_create_got_no_answer_is_found_and_not_created_twice(kfp: KfpApiServer, start: Any, kind: str) -> None:
    kfp.faults.append(Fault(kind, times=1, method="POST", path="runs$", seconds=1.2))
    result = start("--wait")
    assert result.exit_code == 0, result.output
    assert the_only_run(kfp)["run_id"] in result.stdout


def test_a_run_that_may_have_been_created_is_not_created_again(kfp: KfpApiServer, start: Any) -> None:
    kfp.faults.append(Fault("drop-before", times=1, method="POST", path="runs$"))
    result = start("--run-name", "mine")
    assert result.exit_code == 3
    assert "may have been created all the same: look for 'mine' in the experiment 'Default'" in result.stderr
    assert len(kfp.calls("POST", "runs$")) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--param", "a=x"), "a: expected int, got 'x'"),
        (("--param", "a=1", "--param", "c=1"), "its parameters are a, b, label, loud, options, words"),
        ((), "required, but not given: a (int)"),
        (("--param", "a=1", "--params", "missing.yaml"), "missing.yaml: No such file"),
        (("--param", "a=1", "--timeout", "5"), "--timeout: only with --wait or --local"),
        (("--param", "a=1", "--image", "x:1"), "it is compiled already"),
        (("--param", "a=1", "--experiment", " "), "experiment: a name has"),
        (("--param", "a=1", "--run-name", "x" * 200), "run name: a name has"),
        (("--param", "a=1", "--param", "label=[[Index]]"), "label: placeholders"),
    ],
)
def test_bad_input_is_refused_before_anything_is_created(
    kfp: KfpApiServer, run: Run, tiny_yaml: str, arguments: tuple[str, ...], said: str
) -> None:
    result = run("pipeline", "run", tiny_yaml, "--host", kfp.url, *arguments)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert {method for method, _, _ in kfp.requests} <= {"GET"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_wait_and_says_that_the_run_goes_on(kfp: KfpApiServer, tiny_yaml: str, number: int) -> None:
    kfp.run_states = [{"state": "RUNNING"}]
    command = [
        sys.executable,
        "-m",
        "trainwright.cli",
        "pipeline",
        "run",
        tiny_yaml,
        "--host",
        kfp.url,
        "--param",
        "a=1",
        "--wait",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    eventually(lambda: len(kfp.calls("GET", "runs/")) >= 1, what="the run is followed")
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130, error
    assert error.splitlines()[-1] == f"interrupted; run {the_only_run(kfp)['run_id']} keeps running"


CACHED = """
pipelineInfo: {name: cached}
schemaVersion: 2.1.0
root:
  inputDefinitions: {parameters: {run_id: {parameterType: STRING, defaultValue: '', isOptional: true}}}
  dag:
    tasks:
      train:
        cachingOptions: {enableCache: true}
        componentRef: {name: comp-train}
        inputs: {parameters: {run_id: {componentInputParameter: run_id}}}
components: {comp-train: {executorLabel: exec-train}}
deploymentSpec: {executors: {exec-train: {container: {image: x, command: COMMAND}}}}
""".replace("COMMAND", json.dumps(step_command("trainwright.components.train.component", "1")))


def test_a_run_whose_training_may_come_from_the_cache_is_warned_of(kfp: KfpApiServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "cached.yaml"
    file.write_text(CACHED, "utf-8")
    words = ("pipeline", "run", str(file), "--host", kfp.url)
    warned = run(*words, "--param", "run_id=mine")
    assert (warned.exit_code, "warning: train: cached with the constant run_id 'mine'" in warned.stderr) == (0, True)
    assert "warning" not in run(*words).stderr
    assert "warning" not in run("pipeline", "compile", str(file)).stderr
    file.write_text(CACHED.replace("componentInputParameter: run_id", "runtimeValue: {constant: mine}"), "utf-8")
    assert "warning: train: cached" in run("pipeline", "compile", str(file)).stderr
