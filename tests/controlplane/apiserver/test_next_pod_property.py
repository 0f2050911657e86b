"""Whatever is sent to the cluster, the next pod starts: an object concerns itself, and no other one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hostile
import pytest
import urllib3
from factories import pod
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_pods import odd_pods
from support.waiting import eventually

from trainwright.api.errors import ApiError
from trainwright.api.kinds import NODE, POD, Kind
from trainwright.api.objects import name_of
from trainwright.controlplane.node.registration import NODE_NAME
from trainwright.embedded.home import Home
from trainwright.embedded.options import FeatureGates
from trainwright.embedded.plane import ControlPlane

pytestmark = pytest.mark.medium
IS_FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
PATIENCE = 2.0 if IS_FUZZ else 20.0
"""Seconds until a pod has started; a machine that runs other tests has no time for less."""
next_pod_settings = settings(
    suppress_health_check=list(HealthCheck), max_examples=settings().max_examples // 5 if IS_FUZZ else 12
)


class Live:
    """A cluster that runs pods, and its API server as clients reach it."""

    def __init__(self, home: Path) -> None:
        self.plane = ControlPlane(Home(home), gates=FeatureGates())
        self.url = self.plane.start(0).url
        token = (home / "credentials/admin.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        again = urllib3.Retry(3, allowed_methods=None)  # an idle connection may be closed just as it is used
        self._pool = urllib3.PoolManager(headers=headers, ca_certs=str(home / "credentials/ca.crt"), retries=again, timeout=20)
        self._pods = 0

    def send(self, kind: Kind, obj: Any) -> int:
        """Create an object, and return the status of the answer."""
        return self._pool.request("POST", self.url + kind.path("default"), body=hostile.dumps(obj)).status

    def remove(self, kind: Kind) -> None:
        """Delete all objects of the kind, and with them what they own; those that every cluster has are made again or stay."""
        for each in self.plane.cluster.list(kind, "default").items:
            with suppress(ApiError):
                if each["metadata"].get("finalizers"):
                    self.plane.cluster.patch(kind, name_of(each), {"metadata": {"finalizers": None}}, "default")
                self.plane.cluster.delete(kind, name_of(each), "default", grace_period_seconds=0)

    def next_pod_starts(self, what: str) -> None:
        """Run a pod that ends at once, and delete it."""
        self._pods += 1
        name = f"next-{self._pods}"
        self.plane.cluster.create(pod(name, script="true"))
        eventually(lambda: self._has_run(name), PATIENCE, f"a pod starts after {what}")
        self.plane.cluster.delete(POD, name, "default", grace_period_seconds=0)

    def _has_run(self, name: str) -> bool:
        statuses = (self.plane.cluster.get(POD, name, "default").get("status") or {}).get("containerStatuses") or [{}]
        return bool(statuses[0].get("state", {}).keys() & {"running", "terminated"})

    def remove_pods(self) -> None:
        """Delete all pods; none stays, whatever it was."""
        self.remove(POD)
        eventually(lambda: not self.plane.cluster.list(POD, "default").items, 20, "all pods are gone")
        folders = self.plane._home.node / "pods"
        eventually(lambda: not list(folders.iterdir()), 20, "their files are gone")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = Live(tmp_path_factory.mktemp("live") / "home")
    yield live
    live.plane.stop(2)


@pytest.fixture(autouse=True)
def nothing_is_left(live: Live) -> Iterator[None]:
    yield
    live.remove_pods()
    assert live.plane._problems() == {"controllers": [], "node": []}
    conditions = live.plane.cluster.get(NODE, NODE_NAME)["status"]["conditions"]
    assert next(each["status"] for each in conditions if each["type"] == "Ready") == "True"


def test_after_any_odd_pod_the_next_one_starts(live: Live) -> None:
    for what, odd in odd_pods().items():
        assert live.send(POD, odd) in (201, 400, 422), what
        live.next_pod_starts(what)


RUNNABLE = pod("a", script="true", volumes=[{"name": "v", "emptyDir": {}}], container={
    "env": [{"name": "A", "value": "$(A)"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "args": ["$(A)"], "ports": [{"containerPort": 80, "name": "web"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}, "securityContext": {"runAsUser": 1000},
    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "lifecycle": {"postStart": {"exec": {"command": ["true"]}}},
}, hostAliases=[{"ip": "127.0.0.1", "hostnames": ["a"]}], securityContext={"fsGroup": 5, "sysctls": []}, hostname="a", subdomain="b",
   dnsConfig={"searches": ["a"]}, initContainers=[{"name": "i", "image": "x", "command": ["true"]}])  # fmt: skip
"""A pod that uses much of what the node does."""


@next_pod_settings
@given(hostile.mutated(RUNNABLE))
def test_property_after_any_pod_the_next_one_starts(live: Live, odd: Any) -> None:
    assert 200 <= live.send(POD, odd) < 500
    live.next_pod_starts(repr(odd))
    live.remove_pods()


ANY_OBJECT = st.sampled_from(hostile.WRITTEN).flatmap(
    lambda kind: st.tuples(st.just(kind), hostile.mutated(hostile.valid(kind, "odd")))
)


@next_pod_settings
@given(ANY_OBJECT)
def test_property_after_any_object_the_next_pod_starts(live: Live, sent: tuple[Kind, Any]) -> None:
    kind, obj = sent
    assert 200 <= live.send(kind, obj) < 500
    live.next_pod_starts(f"{kind.kind} {obj!r}")
    if kind.namespaced:
        live.remove(kind)
