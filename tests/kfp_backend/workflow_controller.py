"""Stands in for Argo's workflow controller: it ends the workflow of a run, and applies its deadline to the nodes of its exit handler.

A termination sets `activeDeadlineSeconds: 0`. Argo then fails every pending node at each of its reconciles, but for those below a node
whose displayed name ends in `.onExit`. Facts are in the reference `kfp.md`, "A loaded backend".
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.argo_workflows import complete_workflow

from trainwright.api.errors import NotFound

if TYPE_CHECKING:
    from backend import PipelineRun

HANDLER = "exit-handler-1.onExit"


def is_spared(node: str) -> bool:
    """Whether the deadline leaves a pending node alone. With `templateDefaults` no node's displayed name ends in `.onExit`."""
    return ".onExit." in node


@dataclass(frozen=True)
class Pace:
    """How busy the cluster is: seconds between two reconciles, and until a new pod runs."""

    reconcile: float = 0.2
    pod: float = 0.0


QUIET, BUSY = Pace(), Pace(0.5, 2.0)


class WorkflowController(threading.Thread):
    """Follows a run until its workflow has ended. `has_handler`: its steps are in an exit handler with `clean_up`."""

    def __init__(self, run: PipelineRun, pace: Pace, *, has_handler: bool):
        super().__init__(name=f"workflow-{run.workflow.name}", daemon=True)
        self._run, self._pace = run, pace
        self._handler_nodes = ["clean-up-driver", "clean-up"] if has_handler else []
        self._stop_event = threading.Event()
        self.has_cleaned_up = False
        self.start()

    def run(self) -> None:
        pending, due, has_failed = "", 0.0, False
        while not self._stop_event.wait(self._pace.reconcile):
            if not all(step.has_ended for step in self._run.steps):
                continue
            has_failed = has_failed or any(not step.wait().succeeded for step in self._run.steps)
            if time.monotonic() < due:  # its pod does not run yet
                if self._run.has_deadline and not is_spared(self._node(pending)):
                    break  # "Step exceeded its deadline": what follows is omitted
                continue
            if pending == "clean-up":
                self._run.finish("RUNNING" if self._run.has_deadline else "FAILED" if has_failed else "SUCCEEDED")
                self.has_cleaned_up = True
            if not self._handler_nodes:
                break
            pending, due = self._handler_nodes.pop(0), time.monotonic() + self._pace.pod
        with contextlib.suppress(NotFound):  # the run is deleted
            complete_workflow(self._run.cluster, self._run.workflow_object, "Failed" if has_failed else "Succeeded")

    def close(self) -> None:
        """End without more reconciles."""
        self._stop_event.set()
        self.join(60)

    def _node(self, name: str) -> str:
        return self._run.workflow.node_name(f"{HANDLER}.{name}", 0, self._run.has_template_defaults)
