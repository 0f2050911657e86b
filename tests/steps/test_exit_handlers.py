"""A run whose pipeline does not clean up after a step is warned of, if its workflow may be read, and no other run."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.on_first_use import OnFirstUse

from trainwright.api.errors import Forbidden, ServiceUnavailable
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs.state.waiters import Workflow
from trainwright.steps.training.own_step import (
    NO_GUARD,
    WARNING,
    OwnStep,
    is_cleaned_up,
    warn_without_exit_handler,
    warn_without_guard,
)
from trainwright.submission.jobs_client import JobsClient

shipped = OnFirstUse("trainwright.components")


def implementation(component: Any) -> str:
    """The program of a component as the backend's compiler stores it: JSON in a parameter of the workflow."""
    return json.dumps({"command": component.component_spec.implementation.container.command})


def hook(name: str, container: str) -> dict[str, Any]:
    arguments = {"parameters": [{"name": "task", "value": "{}"}, {"name": "container", "value": container}]}
    return {"name": name, "dag": {"tasks": [{"name": "clean-up-driver", "arguments": arguments}, {"name": "clean-up"}]}}


def workflow(*hooks: dict[str, Any], at: str = "exit-handler-1") -> dict[str, Any]:
    """The workflow of a pipeline with a task for each hook, and one that has none."""
    hooked = [{"name": at, "hooks": {"exit": {"template": one["name"]}}} for one in hooks]
    root = {"name": "root", "dag": {"tasks": [*hooked, {"name": "train"}]}}
    parameters = [
        {"name": "implementations-ours", "value": implementation(shipped.clean_up)},
        {"name": "implementations-other", "value": implementation(shipped.evaluate)},
    ]
    return {"spec": {"arguments": {"parameters": parameters}, "templates": [*hooks, root, {"name": "impl", "container": {}}]}}


OURS = hook("exit-hook-root-clean-up", "{{workflow.parameters.implementations-ours}}")
OTHER = hook("exit-hook-root-mail", "{{workflow.parameters.implementations-other}}")
COMMAND = hook("exit-hook-root-command", json.dumps({"command": ["trainwright", "clean", "--run", "r"]}))


@pytest.mark.parametrize(
    ("found", "path", "expected"),
    [
        (partial(workflow, OURS), "exit-handler-1/train", True),
        (partial(workflow, OURS), "exit-handler-1/for-loop-2[3]/train", True),
        (partial(workflow, OURS), "", True),
        (partial(workflow, COMMAND), "exit-handler-1/train", True),
        (partial(workflow, OURS, at="exit-handler-2"), "train", False),
        (partial(workflow, OTHER), "exit-handler-1/train", False),
        (partial(workflow), "train", False),
        (partial(dict, spec={"workflowTemplateRef": {"name": "t"}}), "train", None),
        (partial(dict), "", None),
    ],
)
def test_the_workflow_tells_whether_a_step_is_cleaned_up_after(
    found: Callable[[], dict[str, Any]], path: str, expected: bool | None
) -> None:
    assert is_cleaned_up(found(), path) is expected


class Server(DelegatingCluster):
    """A cluster with a workflow, or one that may not be read."""

    def __init__(self, cluster: EmbeddedCluster, found: dict[str, Any] | None):
        super().__init__(cluster)
        self._found = found

    def get(self, kind: Any, name: str, namespace: str) -> Any:
        assert (kind.plural, name, namespace) == ("workflows", "flow-1", "team")
        if self._found is None:
            raise Forbidden("not you")
        return self._found


@pytest.mark.parametrize(("found", "warns"), [(partial(workflow), True), (partial(workflow, OURS), False), (None, False)])
def test_the_log_warns_once(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str], found: Callable[[], dict[str, Any]] | None, warns: bool
) -> None:
    client = JobsClient.of(Server(cluster, found and found()))  # type: ignore[arg-type]
    warn_without_exit_handler(client, OwnStep("exit-handler-1/train", workflow=Workflow("flow-1", "team", {})))
    warn_without_exit_handler(client, OwnStep("train"))
    assert capsys.readouterr().out == (f"{WARNING}\n" if warns else "")


@pytest.mark.parametrize(("guarded", "warns"), [(True, False), (False, True), (None, False), (ServiceUnavailable("down"), False)])
def test_log_warns_of_a_cluster_where_nothing_watches(
    cluster: EmbeddedCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    guarded: bool | Exception | None,
    warns: bool,
) -> None:
    def answer(_client: JobsClient, namespace: str) -> bool | None:
        assert namespace == "team"
        if isinstance(guarded, Exception):
            raise guarded
        return guarded

    monkeypatch.setattr(JobsClient, "is_guarded", answer)
    assert warn_without_guard(JobsClient.of(cluster), "team") is (guarded is True)
    assert capsys.readouterr().out == (f"{NO_GUARD}\n" if warns else "")
