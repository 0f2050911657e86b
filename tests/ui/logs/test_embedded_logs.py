"""Logs of pods of the embedded cluster, over HTTPS: live, restarted, large, deleted."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from calls import call
from factories import pod
from support.cluster_under_test import embedded
from support.waiting import eventually

from trainwright.api.errors import BadRequest, NotFound
from trainwright.api.kinds import POD
from trainwright.submission import JobsClient, connect_for_jobs
from trainwright.ui.call import Call
from trainwright.ui.logs.endpoints import LogEndpoints

pytestmark = pytest.mark.medium
Json = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[JobsClient]:
    with embedded(folder, node=True) as kubeconfig:
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


def memory(name: str) -> int:
    """Return a figure of the memory of this process, in kB."""
    (line,) = (line for line in Path("/proc/self/status").read_text("utf-8").splitlines() if line.startswith(name))
    return int(line.split()[1])


def tail(endpoints: LogEndpoints, request: Call) -> Json:
    async def read() -> bytes:
        return b"".join([part async for part in endpoints.show_lines(request).body_iterator])  # type: ignore[misc]

    answer: Json = orjson.loads(asyncio.run(read()))
    return answer


def follow(endpoints: LogEndpoints, request: Call, on_message: Callable[[Json], Any]) -> list[str]:
    """Follow a log to its end; returns the texts of its lines."""

    async def read() -> list[str]:
        found: list[str] = []
        stream = endpoints.follow(request)
        async for message in stream:
            found += [text for _, text in message.get("lines", [])]
            on_message(message)
            if message.get("ended"):
                await stream.aclose()
        return found

    return asyncio.run(asyncio.wait_for(read(), 60))


def test_a_live_log_grows_and_ends(cluster: JobsClient, endpoints: LogEndpoints, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = (
        f"echo one; printf ' 10%%\\r 20%%'; while [ ! -e {go} ]; do sleep 0.05; done; printf '\\r100%%\\n'; seq 5000; printf end"
    )
    request = asked(cluster, cluster.create(pod("live", script=script)))
    eventually(lambda: [text for _, text in tail(endpoints, request)["lines"]] == ["one"], seconds=30)

    def on_message(message: Json) -> None:
        if message["partial"] == " 20%":
            go.touch()

    lines = follow(endpoints, request, on_message)
    assert lines == ["one", "100%", *map(str, range(1, 5001)), "end"]


def test_each_run_of_a_restarted_container_has_its_log(cluster: JobsClient, endpoints: LogEndpoints, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"if [ -e {mark} ]; then echo second; else touch {mark}; echo first; exit 1; fi"
    made = cluster.create(pod("again", script=script, restartPolicy="OnFailure"))
    eventually(lambda: (cluster.get(POD, "again", "default").get("status") or {}).get("phase") == "Succeeded", seconds=30)
    first, second = tail(endpoints, asked(cluster, made)), tail(endpoints, asked(cluster, made, restart=1))
    assert [[text for _, text in each["lines"]] for each in (first, second)] == [["first"], ["second"]]
    assert "restarted" in first["message"]


def test_a_stream_ends_with_its_pod(cluster: JobsClient, endpoints: LogEndpoints) -> None:
    request = asked(cluster, cluster.create(pod("deleted", script="echo here; sleep 1000")))

    def on_message(message: Json) -> None:
        if message["lines"]:
            cluster.delete(POD, "deleted", "default", grace_period_seconds=0)

    assert follow(endpoints, request, on_message) == ["here"]
    with pytest.raises(NotFound):
        endpoints.show_lines(request)


@pytest.mark.alone
def test_a_log_of_200_megabytes_opens_in_a_second_and_little_memory(
    cluster: JobsClient, endpoints: LogEndpoints, folder: Path
) -> None:
    made = cluster.create(pod("large", script="echo begin"))
    eventually(lambda: (cluster.get(POD, "large", "default").get("status") or {}).get("phase") == "Succeeded", seconds=30)
    (log,) = folder.glob(f"home/node/pods/{made['metadata']['uid']}/containers/main/0/log")
    entry = b"2026-11-28T17:00:%02d.%09dZ stdout F step %09d loss 0.123 grad_norm 1.5\n"
    with open(log, "wb") as file:
        for start in range(0, 2_500_000, 10_000):
            file.write(b"".join(entry % (number // 50_000, number, number) for number in range(start, start + 10_000)))
    assert log.stat().st_size == 200_000_000
    request = asked(cluster, made)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, begun = memory("VmRSS"), time.process_time()

    async def read() -> tuple[bytes, bytes]:
        parts = endpoints.show_lines(request).body_iterator
        first = last = b""
        async for part in parts:
            first, last = first or part, part if len(part) > 2 else last  # type: ignore[assignment]
        return first, last

    first, last = asyncio.run(read())
    assert time.process_time() - begun < 1
    assert memory("VmHWM") - before < 20_000
    assert b'"cut":true' in first
    assert b"step 002499999" in last


def test_a_silent_log_ends_after_the_idle_time(cluster: JobsClient) -> None:
    cluster.create(pod("silent", script="echo here; sleep 1000"))

    def read() -> bytes:
        try:
            return b"".join(cluster.logs("silent", "default", follow=True, idle_seconds=0.3))
        except BadRequest:  # it has not started
            return b""

    assert eventually(read) == b"here\n"
    cluster.delete(POD, "silent", "default", grace_period_seconds=0)
