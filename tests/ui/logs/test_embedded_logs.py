"""Logs and objects of pods of the embedded cluster, over HTTPS: live, restarted, large, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calls import call
from factories import pod
from support.cluster_under_test import embedded
from support.waiting import eventually

from trainwright.api.errors import BadRequest
from trainwright.api.kinds import POD
from trainwright.submission.jobs_client import JobsClient, connect_for_jobs
from trainwright.ui.call import Call
from trainwright.ui.logs.endpoints import LogEndpoints

pytestmark = pytest.mark.medium
Json = dict[str, Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobsClient]:
    with embedded(tmp_path_factory.mktemp("logs"), node=True) as kubeconfig:
        yield connect_for_jobs(kubeconfig)


@pytest.fixture
def endpoints() -> Iterator[LogEndpoints]:
    made = LogEndpoints()
    yield made
    made.close()


def asked(cluster: JobsClient, made: Json, **query: Any) -> Call:
    metadata = made["metadata"]
    path = {"namespace": "default", "pod": metadata["name"], "container": "main"}
    return call(cluster, path, uid=metadata["uid"], **query)


def ended(endpoints: LogEndpoints, request: Call) -> Json:
    eventually(lambda: endpoints.show_lines(request)["ended"], seconds=30)
    return endpoints.show_lines(request)


def test_a_live_log_grows_and_ends(cluster: JobsClient, endpoints: LogEndpoints, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = (
        f"echo one; printf ' 10%%\\r 20%%'; while [ ! -e {go} ]; do sleep 0.05; done; printf '\\r100%%\\n'; seq 5000; printf end"
    )
    request = asked(cluster, cluster.create(pod("live", script=script)))
    eventually(lambda: endpoints.show_lines(request)["lines"] == ["one"], seconds=30)
    eventually(lambda: endpoints.show_lines(request)["partial"] == " 20%", seconds=10)
    assert endpoints.show_lines(request)["state"] == "live"
    go.touch()
    answer = ended(endpoints, request)
    assert answer["total"] == 5003
    assert answer["lines"][:3] == ["one", "100%", "1"]
    last = endpoints.show_lines(asked(cluster, cluster.get(POD, "live", "default"), last=1, count=2))
    assert last["lines"] == ["5000", "end"]
    assert endpoints.search(asked(cluster, cluster.get(POD, "live", "default"), text="^4999$", expression=1))["lines"] == [5000]


def test_each_run_of_a_restarted_container_has_its_log(cluster: JobsClient, endpoints: LogEndpoints, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"if [ -e {mark} ]; then echo second; else touch {mark}; echo first; exit 1; fi"
    made = cluster.create(pod("again", script=script, restartPolicy="OnFailure"))
    first, second = asked(cluster, made), asked(cluster, made, restart=1)
    assert ended(endpoints, second)["lines"] == ["second"]
    answer = ended(endpoints, first)
    assert answer["lines"] == ["first"]
    assert "restarted" in answer["message"]


def test_lines_of_a_deleted_pod_stay_on_the_page(cluster: JobsClient, endpoints: LogEndpoints) -> None:
    request = asked(cluster, cluster.create(pod("deleted", script="echo here; sleep 1000")))
    eventually(lambda: endpoints.show_lines(request)["lines"] == ["here"], seconds=30)
    cluster.delete(POD, "deleted", "default", grace_period_seconds=0)
    answer = ended(endpoints, request)
    assert answer["lines"][0] == "here"
    assert answer["state"] in ("ended", "gone")


def test_a_pod_that_never_existed_is_gone(cluster: JobsClient, endpoints: LogEndpoints) -> None:
    answer = ended(endpoints, asked(cluster, {"metadata": {"name": "nobody", "uid": "u"}}))
    assert (answer["state"], answer["total"]) == ("gone", 0)
    assert "not found" in answer["message"]


def test_a_large_log_is_there_within_seconds(cluster: JobsClient, endpoints: LogEndpoints) -> None:
    line = "x" * 90
    request = asked(cluster, cluster.create(pod("large", script=f"yes {line} | head -n 200000; echo needle")))
    answer = ended(endpoints, request)
    assert answer["total"] == 200_001
    found = endpoints.search(asked(cluster, cluster.get(POD, "large", "default"), text="needle", backward=1, limit=1))
    assert found["lines"] == [200_000]


def test_a_silent_log_ends_after_the_idle_time(cluster: JobsClient) -> None:
    cluster.create(pod("silent", script="echo here; sleep 1000"))

    def read() -> bytes:
        try:
            return b"".join(cluster.logs("silent", "default", follow=True, idle_seconds=0.3))
        except BadRequest:  # it has not started
            return b""

    assert eventually(read) == b"here\n"
    cluster.delete(POD, "silent", "default", grace_period_seconds=0)
