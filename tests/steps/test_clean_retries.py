"""The exit handler runs once: an API server that is away for a moment must not keep a job running."""

from __future__ import annotations

from typing import Any

import pytest
from factories import program_request

from trainwright.api.errors import ServiceUnavailable
from trainwright.api.kinds import TRAINJOB, Kind
from trainwright.api.objects import name_of
from trainwright.cluster.protocol import DelegatingCluster
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity, Submission, submit_or_adopt
from trainwright.jobs.state.cancel import CancelPolicy
from trainwright.steps.ends.clean import clean


class Faulty(DelegatingCluster):
    """The first of each kind of request fails: before it has arrived, or, a patch, after it."""

    def __init__(self, cluster: EmbeddedCluster):
        super().__init__(cluster)
        self.failed = set[str]()

    def get(self, kind: Kind, *arguments: Any) -> Any:
        self._fail_once("get")
        return self._cluster.get(kind, *arguments)

    def patch(self, kind: Kind, *arguments: Any, **options: Any) -> Any:
        patched = self._cluster.patch(kind, *arguments, **options)
        self._fail_once("patch")
        return patched

    def delete(self, kind: Kind, *arguments: Any, **options: Any) -> None:
        self._fail_once("delete")
        self._cluster.delete(kind, *arguments, **options)

    def _fail_once(self, what: str) -> None:
        if what not in self.failed:
            self.failed.add(what)
            raise ServiceUnavailable("away for a moment")


@pytest.mark.medium
@pytest.mark.parametrize(("policy", "writes"), [(CancelPolicy.suspend, "patch"), (CancelPolicy.delete, "delete")])
def test_a_job_is_stopped_when_the_api_server_is_back(
    cluster: EmbeddedCluster,
    policy: CancelPolicy,
    writes: str,
) -> None:
    job = submit_or_adopt(Submission(cluster, program_request(), Identity("kfp", "run", "train"), "default")).trainjob
    faulty = Faulty(cluster)
    (cleaned,) = clean(faulty, [job], policy)
    assert not cleaned.failed, cleaned.outcome
    assert faulty.failed == {"get", writes}
    left = [each for each in cluster.list(TRAINJOB, "default").items if not each["metadata"].get("deletionTimestamp")]
    assert [(name_of(each), each["spec"].get("suspend")) for each in left] == (
        [(name_of(job), True)] if writes == "patch" else []
    )
