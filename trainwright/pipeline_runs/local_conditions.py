"""Conditions on outputs of tasks, in a run on this machine.

kfp's local runner finds an output in a condition only if its name is `Output`. For any other, and for a value that is null, it takes
the condition for false, and the run succeeds without the steps in it. Outputs are named here as it finds them, and a condition that
it cannot evaluate fails the run, as on a server.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Iterator
from dataclasses import replace

from trainwright.api.objects import Obj
from trainwright.pipeline_runs.compiled import CompiledPipeline

_CHANNEL = "pipelinechannel--"
_SIGNS = ("Could not resolve ", "Condition evaluation failed")
"""Beginnings of the runner's warnings about a condition that it takes for false."""


def with_conditions(pipeline: CompiledPipeline) -> CompiledPipeline:
    """Return the pipeline with conditions that name outputs as TASK--OUTPUT, the form that the local runner resolves."""
    documents = copy.deepcopy(pipeline.documents)
    for dag in (documents[0]["root"], *documents[0].get("components", {}).values()):
        for task in dag.get("dag", {}).get("tasks", {}).values():
            policy = task.get("triggerPolicy", {})
            for name, source in _outputs(task).items():
                if "condition" in policy:
                    policy["condition"] = policy["condition"].replace(f"['{name}']", f"['{_CHANNEL}{source}']")
    return replace(pipeline, documents=documents)


def _outputs(task: Obj) -> dict[str, str]:
    """Return the inputs of a task that are outputs of other tasks, with the form that the local runner resolves."""
    found = {}
    for name, source in task.get("inputs", {}).get("parameters", {}).items():
        if output := source.get("taskOutputParameter"):
            found[name] = f"{output['producerTask']}--{output['outputParameterKey']}"
    return found


class _Unresolved(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith(_SIGNS) and message not in self.messages:
            self.messages.append(message)


@contextlib.contextmanager
def unresolved_conditions() -> Iterator[list[str]]:
    """Collect the warnings of kfp's local runner, in this process, about conditions that it took for false."""
    handler, root = _Unresolved(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler.messages
    finally:
        root.removeHandler(handler)
