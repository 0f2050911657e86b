"""A cluster whose threads are dead or stuck says so: at `/readyz`, and in the node's condition Ready."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from factories import pod
from support.waiting import eventually

from trainwright.api.kinds import NODE, POD, SERVICE
from trainwright.api.objects import Obj
from trainwright.backoff import Backoff
from trainwright.controlplane import life_signs
from trainwright.controlplane.controllers import loop
from trainwright.controlplane.controllers.loop import StoreInformer
from trainwright.controlplane.life_signs import STUCK_SECONDS, LifeSign
from trainwright.controlplane.node import registration
from trainwright.controlplane.node.network.pod_network import PodNetwork
from trainwright.controlplane.node.registration import NODE_NAME
from trainwright.embedded.plane import ControlPlane


@pytest.fixture
def thread() -> Iterator[threading.Thread]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="worker", daemon=True)
    yield thread
    end.set()


def test_a_thread_is_missed_before_it_starts_and_after_it_ends(thread: threading.Thread) -> None:
    sign = LifeSign(thread)
    assert sign.problems() == ["thread worker has not started"]
    thread.start()
    assert sign.problems() == []
    ended = threading.Thread(target=lambda: None, name="short")
    ended.start()
    ended.join()
    assert LifeSign(ended).problems() == ["thread short has ended"]


def test_work_that_does_not_end_is_told_and_waiting_is_not(thread: threading.Thread) -> None:
    now = [0.0]
    thread.start()
    sign = LifeSign(thread, monotonic=lambda: now[0])
    now[0] += 10 * STUCK_SECONDS
    assert sign.problems() == []
    with sign.turn():
        now[0] += STUCK_SECONDS
        assert sign.problems() == []
        now[0] += 1
        assert sign.problems() == ["thread worker has been at one piece of work for more than 60 s"]
    assert sign.problems() == []


def readiness(plane: ControlPlane, path: str = "/readyz") -> tuple[int, str]:
    assert plane._serving is not None
    with urllib3.PoolManager(ca_certs=str(plane._credentials.authority), retries=False) as pool:
        answer = pool.request("GET", plane._serving.url + path)
    return answer.status, answer.data.decode()


def ready_condition(plane: ControlPlane) -> Obj:
    conditions = plane.cluster.get(NODE, NODE_NAME)["status"]["conditions"]
    assert [each["type"] for each in conditions].count("PodIsolation") == 1, "the other conditions stay"
    return next(each for each in conditions if each["type"] == "Ready")


@pytest.mark.medium
def test_a_node_that_is_stuck_is_not_ready_until_it_goes_on(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    assert readiness(plane) == (200, "ok")
    assert "[+]node ok" in readiness(plane, "/readyz?verbose")[1]
    assert plane._agent is not None
    go_on = threading.Event()
    monkeypatch.setattr(life_signs, "STUCK_SECONDS", 0.1)
    monkeypatch.setattr(registration, "EVERY_SECONDS", 0.05)
    add = plane._agent._network.add
    monkeypatch.setattr(plane._agent._network, "add", lambda pod: (go_on.wait(30), add(pod)))
    plane.cluster.create(pod(script="true"))
    eventually(lambda: readiness(plane)[0] == 500, 10, "the API server says that the node is stuck")
    status, text = readiness(plane, "/readyz/node")
    assert status == 500
    assert text.startswith("[-]node failed: thread pod-changes has been at one piece of work"), text
    assert readiness(plane, "/livez") == (200, "ok")
    eventually(lambda: ready_condition(plane)["status"] == "False", 10)
    assert "pod-changes" in ready_condition(plane)["message"]
    go_on.set()
    eventually(lambda: readiness(plane) == (200, "ok"), 10)
    eventually(lambda: ready_condition(plane)["status"] == "True", 10)


@pytest.mark.medium
@pytest.mark.parametrize("part", ["controllers", "node"])
def test_a_dead_thread_makes_the_cluster_unready(plane: ControlPlane, part: str) -> None:
    assert plane._controllers is not None
    assert plane._agent is not None
    plane._controllers.stop() if part == "controllers" else plane._agent._stop.set()
    eventually(lambda: f"[-]{part} failed: " in readiness(plane)[1], 10)
    assert "has ended" in readiness(plane)[1]


@pytest.mark.medium
def test_controllers_go_on_after_an_error_of_their_loop(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_BACKOFF", Backoff(0.01, 0.1))
    deliver, failures = StoreInformer.deliver, [MemoryError(), MemoryError()]

    def fail_at_first(informer: StoreInformer) -> None:
        if failures:
            raise failures.pop()
        deliver(informer)

    monkeypatch.setattr(StoreInformer, "deliver", fail_at_first)
    plane.cluster.create(pod(script="true"))
    eventually(lambda: plane.cluster.get(POD, "p", "default")["status"].get("phase") == "Succeeded", 20)
    assert failures == []
    assert readiness(plane) == (200, "ok")


@pytest.mark.medium
def test_the_file_of_one_pod_keeps_no_other_one_and_is_written_later(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "EVERY_SECONDS", 0.05)
    write, broken = PodNetwork._write, ["client"]

    def write_unless_broken(network: PodNetwork, pod: Obj, known: Any) -> None:
        if pod["metadata"]["name"] in broken and known.services:
            raise OSError(28, "No space left on device")
        write(network, pod, known)

    monkeypatch.setattr(PodNetwork, "_write", write_unless_broken)
    service = {"apiVersion": "v1", "kind": SERVICE.kind, "metadata": {"name": "db", "namespace": "default"}}
    plane.cluster.create({**service, "spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 80}]}})
    plane.cluster.create(pod("client", script="until grep -q db.default.svc /etc/hosts; do sleep 0.05; done"))
    eventually(lambda: plane.cluster.get(POD, "client", "default")["status"].get("phase") == "Running", 20)
    plane.cluster.create(pod("server", script="sleep 60", labels={"app": "db"}))
    eventually(lambda: plane.cluster.get(POD, "server", "default")["status"].get("phase") == "Running", 20)
    broken.clear()
    eventually(lambda: plane.cluster.get(POD, "client", "default")["status"].get("phase") == "Succeeded", 20)
