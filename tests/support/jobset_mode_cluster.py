"""A cluster in jobset mode over an API server in memory where nobody acts and nothing of Trainer is served, and jobs for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from factories import trainjob

from trainwright.api.kinds import JOBSET, TRAINJOB
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.jobs import Identity
from trainwright.submission.jobset_mode import JobSetCluster
from trainwright.trainer.webhooks import VALIDATORS

STEP = Identity("kfp", "run", "train")
MPI = "deepspeed-distributed"


class Inner(EmbeddedCluster):
    """Lets the test act before a call; notes what was made; Trainer's API must not be asked for anything."""

    def __init__(self, server: ResourceServer):
        super().__init__(server)
        self.before: Callable[[str, str], None] = lambda _verb, _kind: None
        self.made: list[str] = []

    def create(self, obj: Any, **options: Any) -> Any:
        self.before("create", obj["kind"])
        created = super().create(obj, **options)
        self.made.append(obj["kind"])
        self.before("created", obj["kind"])
        return created

    def patch(self, kind: Any, *args: Any, **more: Any) -> Any:
        self.before("patch", kind.kind)
        return super().patch(kind, *args, **more)

    def get(self, kind: Any, *args: Any) -> Any:
        assert kind.group != TRAINJOB.group, "not served"
        return super().get(kind, *args)


@pytest.fixture
def inner() -> Iterator[Inner]:
    store = Store(":memory:")
    cluster = Inner(ResourceServer(store, validators=VALIDATORS))
    yield cluster
    cluster.close()
    store.close()


@pytest.fixture
def cluster(inner: Inner) -> JobSetCluster:
    return JobSetCluster(inner)


two_node_trainjob = partial(trainjob, script="true", nodes=2)


def set_status(inner: Inner, name: str = "demo", **status: Any) -> None:
    inner.patch(JOBSET, name, {"status": {"restarts": 0, **status}}, "default", subresource="status")


def entry(kind: str, status: str = "True", reason: str = "R") -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"the {kind} message",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def conditions(job: Any) -> list[tuple[str, str, str, str]]:
    return [(c["type"], c["status"], c["reason"], c["message"]) for c in (job.get("status") or {}).get("conditions") or []]
