"""Warns of a run that may leave jobs training when it is terminated: nothing on its cluster watches, no exit handler cleans up."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.errors import ApiError
from trainwright.api.objects import Obj
from trainwright.jobs.state.waiters import WORKFLOW
from trainwright.steps.ends.step_end import write_line
from trainwright.steps.own_step import OwnStep
from trainwright.submission.jobs_client import JobsClient

WARNING = (
    "warning: no exit handler of this run cleans up: if the run is terminated, its TrainJob may train on; put the steps of the "
    "pipeline into `with trainwright_exit_handler():` (docs/cancellation.md)"
)
NO_GUARD = (
    "warning: nothing on this cluster ends the TrainJob if its step is killed: run a guard, as `trainwright rbac --guard` prints it "
    "(docs/cancellation.md)"
)
_CLEANS_UP = re.compile(r"trainwright\.components\.clean_up\b|trainwright[\s\",\\]+clean\b")
"""In the program or the command of the exit task: the component, or `trainwright clean`."""
_PARAMETER = re.compile(r"\{\{workflow\.parameters\.([^}]+)\}\}")
log = logging.getLogger(__name__)


def warn_without_guard(client: JobsClient, namespace: str) -> bool:
    """Write a warning to the step's log if nothing ends the jobs of this namespace that nobody waits for; returns whether something
    does. Without the right to see that there is no warning.
    """
    try:
        is_guarded = client.is_guarded(namespace)
    except ApiError as error:  # what follows meets it, too, if it lasts
        log.debug("event=guard_not_known namespace=%s error=%s", namespace, error.message)
        return False
    if is_guarded is False:
        write_line(NO_GUARD)
    return bool(is_guarded)


def warn_without_exit_handler(client: JobsClient, own: OwnStep) -> None:
    """Write a warning to the step's log, if its workflow can be read and nothing cleans up after this step."""
    if own.workflow is None:
        return
    try:
        workflow = client.get(WORKFLOW, own.workflow.name, own.workflow.namespace)
    except ApiError as error:  # the permission is optional
        log.debug("event=workflow_not_read name=%s error=%s", own.workflow.name, error.message)
        return
    if is_cleaned_up(workflow, own.path if own.is_place_of_node else "") is False:
        write_line(WARNING)


def is_cleaned_up(workflow: Obj, path: str) -> bool | None:
    """Return whether an exit handler around the step at this place of a pipeline cleans up; None if the workflow does not tell.

    Without a known place every exit handler counts. Pure.
    """
    spec = workflow.get("spec") or {}
    templates = {template.get("name"): template for template in spec.get("templates") or []}
    if not templates:
        return None
    parameters = {one.get("name"): str(one.get("value") or "") for one in (spec.get("arguments") or {}).get("parameters") or []}
    around = {part.partition("[")[0] for part in path.split("/")}
    return any(
        (not path or task.get("name") in around) and _cleans_up(templates.get(hook), parameters)
        for template in templates.values()
        for task, hook in _hooks(template)
    )


def _hooks(template: Obj) -> Iterator[tuple[Obj, str]]:
    """Yield the tasks with an exit hook, and the template of the hook."""
    for task in _tasks(template):
        hook = ((task.get("hooks") or {}).get("exit") or {}).get("template")
        if hook:
            yield task, str(hook)


def _tasks(template: Obj) -> list[Any]:
    return (template.get("dag") or {}).get("tasks") or []


def _cleans_up(hook: Obj | None, parameters: dict[Any, str]) -> bool:
    values = [
        str(argument.get("value") or "")
        for task in _tasks(hook or {})
        for argument in (task.get("arguments") or {}).get("parameters") or []
    ]
    return any(
        _CLEANS_UP.search(_PARAMETER.sub(lambda found: parameters.get(found[1], ""), value)) is not None for value in values
    )
