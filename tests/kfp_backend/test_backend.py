"""The stand-in for the backend does to a step what a real one does."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from backend import RETRIES, Backend, PipelineRun, RetryPolicy
from repeating_component import repeat
from step_cluster import StepCluster
from support.waiting import eventually

from trainwright.api.kinds import CONFIG_MAP, POD
from trainwright.api.objects import labels_of, name_of, owners_of, uid_of

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


def test_what_has_left_its_group_and_its_parent_ends_with_the_container(run: PipelineRun, tmp_path: Path) -> None:
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
        assert pod["metadata"]["annotations"]["workflows.argoproj.io/node-name"].endswith(f"({number})")
        eventually(lambda: (tmp_path / "tries").exists() and step.pod.uid in (tmp_path / "tries").read_text())
        step.delete_pod()
    end = step.wait()
    assert (end.succeeded, len(step.pods)) == (False, RETRIES + 1)
    tries = [line.split() for line in (tmp_path / "tries").read_text().splitlines()]
    assert tries == [[pod.name, pod.uid] for pod in step.pods]
    assert not {name_of(pod) for pod in steps.cluster.list(POD, "default").items} & {pod.name for pod in step.pods}


@pytest.mark.parametrize(("policy", "tries"), [(RetryPolicy.on_error, 1), (RetryPolicy.always, RETRIES + 1)])
def test_a_failure_is_tried_again_only_if_the_policy_says_so(run: PipelineRun, policy: RetryPolicy, tries: int) -> None:
    step = run.start_command(sh("exit 2"), retry_policy=policy)
    assert not step.wait().succeeded
    assert len(step.pods) == tries


def test_a_terminated_run_tries_nothing_again(run: PipelineRun) -> None:
    step = run.start_command(sh("exec sleep 100"), retry_policy=RetryPolicy.always)
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
    end = run.start(repeat, {"word": "wörd", "fails": fails}).wait()
    assert end.message == "said wörd"
    assert end.exit_code == int(fails), end.log
    assert end.outputs == ({} if fails else {"words": ["wörd"] * 2})
    assert "\nwörd\n" in end.log
