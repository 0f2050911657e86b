"""The stand-in for the backend does to a step what a real one does."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from backend import RETRIES, Backend, PipelineRun, RunningStep
from servers.api_outage import FAULTS, FORBIDDEN_SECONDS, OUTAGE_SECONDS, Outage
from step_cluster import StepCluster
from step_program import step_program
from support.on_first_use import OnFirstUse
from support.waiting import eventually
from workflow_nodes import workflow_nodes

from trainwright.api.kinds import CONFIG_MAP, POD
from trainwright.api.objects import labels_of, name_of, owners_of, uid_of

repeating_component = OnFirstUse("repeating_component")
shipped = OnFirstUse("trainwright.components")
pytestmark = pytest.mark.slow
# Says in a file that it runs, and after a signal for how long it goes on; what it prints then, nobody reads.
STUBBORN = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def go_on(*_):
    began = time.monotonic()
    while True:
        try:
            print("last words", flush=True)
        except BrokenPipeError:
            (folder / "unheard").touch()
        (folder / "seconds.new").write_text(str(time.monotonic() - began))
        os.replace(folder / "seconds.new", folder / "seconds")
        time.sleep(0.01)
signal.signal(signal.SIGTERM, go_on)
print("first words", flush=True)
(folder / "started").write_text(str(os.getpgrp()))
while True:
    time.sleep(10)
"""
UNGROUPED = """
trap '' TERM
touch "$0"
while true; do sleep 0.1; done
"""


@pytest.fixture
def run(backend: Backend) -> PipelineRun:
    return backend.run()


def sh(script: str, *arguments: object) -> tuple[str, ...]:
    return ("sh", "-ec", script, *map(str, arguments))


@pytest.mark.parametrize(("script", "code"), [("true", 0), ("exit 1", 1), ("exit 77", 1), ("kill -KILL $$", 1)])
def test_every_failure_of_the_program_is_exit_code_1(run: PipelineRun, script: str, code: int) -> None:
    step = run.start_command(sh(script))
    end = step.wait()
    assert (end.exit_code, end.succeeded, len(step.pods)) == (code, code == 0, 1)


@pytest.mark.alone
def test_a_terminated_step_has_up_to_a_second_and_nobody_hears_it(run: PipelineRun, tmp_path: Path) -> None:
    step = run.start_command(sh('exec python3 -c "$0" "$1"', STUBBORN, tmp_path))
    eventually((tmp_path / "started").exists)
    (group,) = {int(Path(f"/proc/{process}/stat").read_text().split()[4]) for process in step.pod.processes()}
    assert int((tmp_path / "started").read_text()) == group, "the launcher and the program are of one group"
    began = time.monotonic()
    run.terminate()
    end = step.wait()
    assert time.monotonic() - began < 5
    assert (end.exit_code, end.succeeded) == (143, False)
    assert 0 <= float((tmp_path / "seconds").read_text()) < 1.5
    assert (tmp_path / "unheard").exists()
    assert end.log.startswith("first words\n")
    assert run.processes() == []


def test_detached_processes_end_with_the_container(run: PipelineRun, tmp_path: Path) -> None:
    step = run.start_command(sh('setsid sh -ec "$0" "$1" & exec sleep 100', UNGROUPED, tmp_path / "started"))
    eventually((tmp_path / "started").exists)
    assert len(step.pod.processes()) >= 3
    run.terminate()
    step.wait()
    assert run.processes() == []


def test_a_pod_that_is_deleted_is_replaced_twice_with_the_same_input(
    run: PipelineRun, steps: StepCluster, tmp_path: Path
) -> None:
    step = run.start_command(sh('echo "$KFP_POD_NAME $KFP_POD_UID" >> "$0"; exec sleep 100', tmp_path / "tries"))
    for number in range(RETRIES + 1):
        eventually(lambda number=number: len(step.pods) == number + 1 and step.pod.is_running)
        pod = steps.cluster.get(POD, step.pod.name, "default")
        assert uid_of(pod) == step.pod.uid
        node = pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"]
        assert node == f"{run.workflow.name}(0).root(0).command(0).executor({number})"
        eventually(lambda: (tmp_path / "tries").exists() and step.pod.uid in (tmp_path / "tries").read_text())
        step.delete_pod()
    end = step.wait()
    assert (end.succeeded, len(step.pods)) == (False, RETRIES + 1)
    tries = [line.split() for line in (tmp_path / "tries").read_text().splitlines()]
    assert tries == [[pod.name, pod.uid] for pod in step.pods]
    assert not {name_of(pod) for pod in steps.cluster.list(POD, "default").items} & {pod.name for pod in step.pods}


@pytest.mark.parametrize(("template_defaults", "set_retry", "tries"), [(True, 0, 1), (True, 3, 1), (False, 0, 1), (False, 1, 2)])
def test_a_failure_is_tried_again_only_without_template_defaults(
    run: PipelineRun, template_defaults: bool, set_retry: int, tries: int
) -> None:
    run.has_template_defaults = template_defaults
    step = run.start_command(sh("exit 2"), set_retry=set_retry)
    assert not step.wait().succeeded
    assert len(step.pods) == tries


def test_a_deleted_pod_is_no_lost_one_if_its_end_is_seen_first_or_without_template_defaults(run: PipelineRun) -> None:
    seen = run.start_command(sh("exec sleep 100"))
    seen.delete_pod(end_is_seen_first=True)
    assert not seen.wait().succeeded
    run.has_template_defaults = False
    older = run.start_command(sh("exec sleep 100"), set_retry=2)
    older.delete_pod()
    assert not older.wait().succeeded
    assert (len(seen.pods), len(older.pods)) == (1, 1)


def test_an_output_that_go_cannot_read_fails_the_step(run: PipelineRun) -> None:
    step = run.start_command(
        sh('mkdir -p "$(dirname "$0")"; echo \'{"parameterValues": {"loss": NaN}}\' > "$0"', run.next_executor_output)
    )
    end = step.wait()
    assert (end.exit_code, end.outputs) == (1, {})
    assert "invalid value NaN" in end.log


def test_a_terminated_run_tries_nothing_again(run: PipelineRun) -> None:
    run.has_template_defaults = False
    step = run.start_command(sh("exec sleep 100"), set_retry=2)
    run.terminate()
    step.wait()
    assert len(step.pods) == 1


def test_the_pod_of_a_step_stays_as_it_is_in_a_cluster_with_controllers(run: PipelineRun, steps: StepCluster) -> None:
    """No scheduler, no kubelet and no garbage collector takes it up, although its owner is of a kind that nobody serves."""
    step = run.start_command(sh("exec sleep 100"))
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}}
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "u"}
    steps.cluster.create({**other, "metadata": {**other["metadata"], "ownerReferences": [gone]}})
    config_maps = partial(steps.cluster.list, CONFIG_MAP, "default")
    eventually(lambda: "other" not in map(name_of, config_maps().items), what="the garbage collector has come by")
    pod = steps.cluster.get(POD, step.pod.name, "default")
    assert pod["status"]["phase"] == "Running"
    assert owners_of(pod) == [run.workflow.owner_reference]
    assert labels_of(pod) == {"pipeline/runid": run.id, "workflows.argoproj.io/workflow": run.workflow.name}
    run.terminate()
    step.wait()
    assert steps.cluster.get(POD, step.pod.name, "default")["status"]["phase"] == "Failed"


@pytest.mark.parametrize("fails", [False, True])
def test_a_component_gets_its_arguments_and_its_outputs_are_kept_after_a_success(run: PipelineRun, fails: bool) -> None:
    end = run.start(repeating_component.repeat, {"word": "wörd", "fails": fails}).wait()
    assert end.message == "said wörd"
    assert end.exit_code == int(fails), end.log
    assert end.outputs == ({} if fails else {"words": ["wörd"] * 2})
    assert "\nwörd\n" in end.log


def test_a_restarted_api_server_forbids_everything_for_some_seconds(steps: StepCluster, tmp_path: Path) -> None:
    with Outage(tmp_path, steps.kubeconfig, 0, None, is_restart=True) as api:
        api.begin()
        assert api.fault_for("get") in FAULTS
        api.began -= OUTAGE_SECONDS
        assert (api.fault_for("get"), api.is_over) == ("403", False)
        api.began -= FORBIDDEN_SECONDS
        assert (api.fault_for("get"), api.is_over) == ("", True)


def test_workflow_above_3_mb_is_refused_and_its_steps_go_on(run: PipelineRun) -> None:
    arguments, started = {"word": "x" * 100_000, "times": 0}, list[RunningStep]()
    while not run.has_error:
        assert len(started) < 7, "three texts of a step's nodes have its input, each node with its wrapper"
        started.append(run.start(repeating_component.repeat, arguments, place=f"repeat-{len(started)}"))
    assert len(started) > 4
    assert all(step.wait().succeeded for step in started)
    with pytest.raises(AssertionError, match="Argo starts no more steps"):
        run.start_command(sh("true"))


def test_nodes_of_steps_are_as_large_as_on_a_server(tmp_path: Path) -> None:
    def sizes(component: Any, **arguments: Any) -> list[int]:
        program = step_program(component, arguments, tmp_path)
        return [len(json.dumps(node)) for node in workflow_nodes("flow.root.step(0)", program, is_wrapped=False).values()]

    driver, executor = sizes(repeating_component.repeat, word="word")
    assert 4000 < driver < 5500, "its source is larger than that of a bare component"
    assert 2600 < executor < 3500
    trainings = 3 * 2**20 / 2 / sum(sizes(shipped.train, run_id="r"))
    assert trainings > 38, "that fit in the workflow of a run, with the wrappers of their pods"
