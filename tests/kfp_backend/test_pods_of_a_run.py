"""The pods of a run, as its steps have them on a cluster, tell which tasks failed where the server names no pods."""

from __future__ import annotations

import pytest
from backend import Backend, RunningStep
from servers.recorded_run import listed_run
from step_cluster import StepCluster
from support.on_first_use import OnFirstUse
from support.waiting import eventually

from trainwright.api.kinds import POD
from trainwright.jobs.state.waiters import POD_RUN_LABEL
from trainwright.pipeline_runs.step_pods import with_pods
from trainwright.pipeline_runs.task_nodes import failed_tasks, tasks_of

repeating_component = OnFirstUse("repeating_component")
pytestmark = pytest.mark.slow
LOOP = "for-loop-1.iteration-iterations(0:{0}).iteration-item.repeat"


@pytest.mark.parametrize("has_template_defaults", [True, False])
def test_failed_iterations_of_a_loop_are_named_with_their_pods(
    backend: Backend, steps: StepCluster, has_template_defaults: bool
) -> None:
    run = backend.run()
    run.has_template_defaults = has_template_defaults
    started: list[RunningStep] = [
        run.start(repeating_component.repeat, {"word": f"word {number}", "fails": number != 1}, place=LOOP.format(number))
        for number in range(3)
    ]
    for step in started:
        step.wait()
    listed = listed_run(run.workflow.name, {"repeat": "FAILED"})
    pods = steps.cluster.list(POD, "default", label_selector=f"{POD_RUN_LABEL}={run.id}").items
    found = with_pods(listed, pods)
    assert sorted(task.state for task in tasks_of(found)) == ["FAILED", "FAILED", "SUCCEEDED"]
    assert sorted(task.pod for task in failed_tasks(found)) == sorted(started[number].pod.name for number in (0, 2))


def test_lost_attempt_is_followed_by_the_pod_that_counts(backend: Backend, steps: StepCluster) -> None:
    run = backend.run()
    step = run.start_command(("sh", "-ec", "sleep 100"))
    lost = steps.cluster.get(POD, step.pod.name, "default")
    step.delete_pod()
    eventually(lambda: len(step.pods) == 2 and step.pod.is_running, what="another attempt runs")
    pods = [lost, *steps.cluster.list(POD, "default", label_selector=f"{POD_RUN_LABEL}={run.id}").items]
    [task] = tasks_of(with_pods(listed_run(run.workflow.name, {"command": "RUNNING"}, state="RUNNING"), pods))
    assert (task.name, task.state, task.pod) == ("command", "RUNNING", step.pod.name)
