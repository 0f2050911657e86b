"""States of runs and tasks on a server of Kubeflow Pipelines. Pure."""

from __future__ import annotations

from trainwright.api.objects import Obj

SUCCEEDED = "SUCCEEDED"
FINAL_STATES = frozenset({SUCCEEDED, "FAILED", "SKIPPED", "CANCELED", "ERROR"})
_UNSET = ("", "RUNTIME_STATE_UNSPECIFIED")


def state_of(obj: Obj) -> str:
    """Return the state of a run or a task; PENDING as long as the server has none."""
    state = str(obj.get("state") or "")
    return "PENDING" if state in _UNSET else state
