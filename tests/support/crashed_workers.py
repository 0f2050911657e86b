"""Keeps a run of several workers going when one of them crashes.

xdist 3.8 runs a test again that has crashed its worker, and hands on the modules that the worker had finished: whoever gets those
waits for a test that is not among them, and the run never ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import tiers
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class CrashProofScheduling(LoadFileScheduling):
    """Hands on the tests that a crashed worker has not run. The one that it was running has failed."""

    def _split_scope(self, nodeid: str) -> str:
        """Name the unit that one worker runs: a module, or a group of modules."""
        return tiers.group_of(nodeid) or super()._split_scope(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """Return the test that was running, if any."""
        modules = self.assigned_work.pop(node)
        left = {module: [test for test, is_done in tests.items() if not is_done] for module, tests in modules.items()}
        crashed = next((test for tests in left.values() for test in tests), None)
        self.workqueue.update(
            {module: unrun for module, tests in left.items() if (unrun := {test: False for test in tests if test != crashed})}
        )
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """Take the tests that a worker has found. Raises RuntimeError if they are others than those of the run: none would run."""
        super().add_node_collection(node, collection)
        if node not in self.registered_collections:
            raise RuntimeError(f"{node.gateway.id}, in place of a crashed worker, has found other tests than it had")

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # a new worker that does not know the tests yet
        super()._reschedule(node)
        while self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)  # a worker runs a test when it knows the next one


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> CrashProofScheduling | None:
    """Replace the scheduler of `--dist loadfile`."""
    return CrashProofScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
