"""What a training starts from is read off its pods: once known it is shown, and a wait that ends without it says why."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.api import names
from trainwright.api.errors import Forbidden
from trainwright.jobs.state.pods import ITS_PROGRAM, read_started_from, started_from

ENDED = {"terminated": {"exitCode": 0, "message": "checkpoint-5\nof its \x1b[31mown\n"}}


def pod(state: dict[str, Any] | None, *, step: str = "node", index: str = "0", created: str = "1", decides: bool = True) -> Any:
    statuses = [{"name": names.RESUME_POINT, "state": state}] if state is not None else []
    return {
        "metadata": {"creationTimestamp": created, "labels": {names.REPLICATED_JOB_LABEL: step, names.COMPLETION_INDEX: index}},
        "spec": {"initContainers": [{"name": names.RESUME_POINT if decides else "other"}]},
        "status": {"phase": "Running", "initContainerStatuses": statuses},
    }


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([], ""),
        ([pod(None)], ""),
        ([pod({"running": {}})], ""),
        ([pod(ENDED)], "checkpoint-5 of its [31mown"),
        ([pod(ENDED, index="1")], ""),
        ([pod({"terminated": {"exitCode": 1, "message": "no export"}})], ""),
        ([pod({"terminated": {"exitCode": 0, "message": "new"}}, created="2"), pod(ENDED)], "new"),
        ([pod({"running": {}}, created="2"), pod(ENDED)], "checkpoint-5 of its [31mown"),
        ([pod(None, decides=False)], ITS_PROGRAM),
        ([pod(None, decides=False, step="dataset-initializer")], ""),
    ],
)
def test_the_newest_pod_of_the_first_rank_says_it(pods: list[Any], text: str) -> None:
    assert started_from(pods) == text


def test_without_the_right_to_read_pods_that_is_said() -> None:
    class NoPods:
        def list(self, *_args: Any, **_options: Any) -> Any:
            raise Forbidden("pods is forbidden")

    job = {"metadata": {"name": "job", "namespace": "default"}}
    found = read_started_from(NoPods(), job)  # type: ignore[arg-type]  # of the cluster, only this is used
    assert found == "what is not known: its pods could not be read: pods is forbidden"
