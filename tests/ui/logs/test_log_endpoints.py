"""Logs over the API of the page: containers, the end of a log, what follows it, and the whole text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from calls import call
from factories import cluster_in_memory, pod, runtime, trainjob
from log_cluster import LogCluster, line, lines
from starlette.responses import StreamingResponse

from trainwright.api.errors import Forbidden, NotFound, TooManyRequests
from trainwright.jobs.logs import container_log
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Call
from trainwright.ui.logs import endpoints as module
from trainwright.ui.logs.endpoints import LogEndpoints, show_containers

Json = dict[str, Any]
LOG_PATH = {"namespace": "default", "pod": "p", "container": "main"}


@pytest.fixture
def endpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogEndpoints]:
    monkeypatch.setattr(container_log, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.001)
    made = LogEndpoints()
    yield made
    made.close()


def asked(cluster: LogCluster, **query: Any) -> Call:
    return call(JobsClient.of(cluster), LOG_PATH, uid="u", **query)  # type: ignore[arg-type]


def content(response: StreamingResponse) -> bytes:
    async def read() -> bytes:
        return b"".join([part async for part in response.body_iterator])  # type: ignore[misc]

    return asyncio.run(read())


def shown(endpoints: LogEndpoints, cluster: LogCluster, **query: Any) -> Json:
    answer: Json = orjson.loads(content(endpoints.show_lines(asked(cluster, **query))))
    return {**answer, "lines": [text for _, text in answer["lines"]]}


def followed(endpoints: LogEndpoints, cluster: LogCluster, **query: Any) -> list[Json]:
    async def follow() -> list[Json]:
        found: list[Json] = []
        stream = endpoints.follow(asked(cluster, **query))
        async for message in stream:
            found.append(message)
            if message["ended"]:
                await stream.aclose()
        return found

    return asyncio.run(asyncio.wait_for(follow(), 10))


def test_the_last_bytes_of_a_log_are_shown(endpoints: LogEndpoints) -> None:
    cluster = LogCluster(lines(0, 3000))
    assert shown(endpoints, cluster) == {"cut": False, "message": "", "lines": [f"line {number}" for number in range(3000)]}
    answer = shown(endpoints, cluster, bytes=420)
    assert (answer["cut"], answer["lines"]) == (True, [f"line {number}" for number in range(2990, 3000)])
    first = orjson.loads(content(endpoints.show_lines(asked(cluster))))["lines"][0]
    assert first == [line(0).split()[0].decode(), "line 0"]


def test_bytes_that_are_no_text_are_shown(endpoints: LogEndpoints) -> None:
    assert shown(endpoints, LogCluster([line(0)[:-7] + b"\xff\xfe\x00<b>\n"]))["lines"] == ["\ufffd\ufffd\\x00<b>"]


def test_a_waiting_container_says_why(endpoints: LogEndpoints) -> None:
    cluster = LogCluster([])
    cluster.waits = "ImagePullBackOff"
    answer = shown(endpoints, cluster)
    assert (answer["lines"], answer["cut"]) == ([], False)
    assert "ImagePullBackOff" in answer["message"]


def test_the_run_before_a_restart_is_shown_to_its_last_line(endpoints: LogEndpoints) -> None:
    cluster = LogCluster(lines(5, 6), previous=b"".join(lines(0, 2)) + line(2)[:-1], restarts=3)
    answer = shown(endpoints, cluster, restart=2)
    assert answer["lines"] == ["line 0", "line 1", "line 2"]
    assert answer["message"] == "the container was restarted after this run"
    assert followed(endpoints, cluster, restart=2) == [{"type": "log", "lines": [], "partial": "", "ended": True}]
    assert shown(endpoints, cluster, restart=3)["lines"] == ["line 5"]
    with pytest.raises(NotFound, match="has not kept"):
        endpoints.show_lines(asked(cluster, restart=1))


def test_last_line_without_line_feed_is_shown_once_the_container_has_ended(endpoints: LogEndpoints) -> None:
    log = [*lines(0, 2), line(2)[:-1]]
    assert shown(endpoints, LogCluster(log))["lines"] == ["line 0", "line 1", "line 2"]
    assert shown(endpoints, LogCluster(log, cuts=(1,)))["lines"] == ["line 0", "line 1"]
    [last] = followed(endpoints, LogCluster(log), after=line(2).split()[0].decode())[-1:]
    assert (last["lines"], last["partial"]) == ([], "")


def test_unknown_containers_and_runs_are_not_found(endpoints: LogEndpoints) -> None:
    cluster = LogCluster(lines(0, 2), restarts=1)
    for answer in (endpoints.show_lines, endpoints.download):
        with pytest.raises(NotFound, match="the container main has no run 2; its last one is 1"):
            answer(asked(cluster, restart=2))
        with pytest.raises(NotFound, match="the pod p has no container 'nobody'; it has main"):
            answer(call(JobsClient.of(cluster), {**LOG_PATH, "container": "nobody"}, uid="u"))  # type: ignore[arg-type]
    assert cluster.asked == []


def test_another_pod_of_the_same_name_is_not_read(endpoints: LogEndpoints) -> None:
    cluster = LogCluster(lines(0, 2))
    cluster.uid = "successor"
    for answer in (endpoints.show_lines, endpoints.download):
        with pytest.raises(NotFound, match="another one has its name"):
            answer(asked(cluster))
    assert cluster.asked == []


def test_errors_of_the_cluster_are_raised(endpoints: LogEndpoints) -> None:
    cluster = LogCluster([])
    cluster.failures = [Forbidden("pods is forbidden")]
    with pytest.raises(Forbidden):
        endpoints.show_lines(asked(cluster))


@pytest.mark.parametrize("query", [{"bytes": "-1"}, {"bytes": "1e9"}, {"restart": "9" * 30}, {"bytes": "٣"}])
def test_numbers_of_the_query_are_checked(endpoints: LogEndpoints, query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        endpoints.show_lines(asked(LogCluster([]), **query))


def test_the_uid_of_the_pod_is_needed(endpoints: LogEndpoints) -> None:
    with pytest.raises(ValueError, match="uid: expected the UID"):
        endpoints.show_lines(call(JobsClient.of(LogCluster([])), LOG_PATH))  # type: ignore[arg-type]


def test_the_stream_has_what_follows_and_the_end(endpoints: LogEndpoints) -> None:
    messages = followed(endpoints, LogCluster(lines(0, 10), cuts=(100, 300)), after=line(3).split()[0].decode())
    assert [text for message in messages for _, text in message["lines"]] == [f"line {number}" for number in range(4, 10)]
    assert messages[-1]["ended"]


def test_the_stream_ends_with_the_server(endpoints: LogEndpoints) -> None:
    async def follow() -> None:
        async for _ in endpoints.follow(asked(LogCluster(lines(0, 1)))):
            endpoints.close()

    asyncio.run(asyncio.wait_for(follow(), 10))


def test_the_number_of_streams_is_limited(endpoints: LogEndpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VIEWS", 0)
    with pytest.raises(TooManyRequests):
        followed(endpoints, LogCluster([]))


def test_the_whole_text_can_be_downloaded(endpoints: LogEndpoints) -> None:
    cluster = LogCluster(lines(0, 5000))
    assert content(endpoints.download(asked(cluster))) == b"".join(b"line %d\n" % number for number in range(5000))
    assert content(endpoints.download(asked(cluster, times=1))) == b"".join(lines(0, 5000))


def test_containers_of_a_trainjob_by_rank() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    state = {"name": "node", "restartCount": 2, "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    index = "batch.kubernetes.io/job-completion-index"
    with cluster_in_memory(runtime(), trainjob(runtime="rt")) as cluster:
        for rank in (10, 2):
            more = {"containers": [{"name": "side", "image": "s"}, {"name": "node", "image": "i"}]}
            init = {"initContainers": [{"name": "prepare", "image": "i"}]}
            made = pod(f"demo-node-0-{rank}", labels={**labels, index: str(rank)}, **more, **init)
            cluster.update_status({**cluster.create(made), "status": {"phase": "Failed", "containerStatuses": [state]}})
        found = show_containers(call(cluster, {"namespace": "default", "name": "demo"}))["containers"]
        with pytest.raises(NotFound):
            show_containers(call(cluster, {"namespace": "default", "name": "nobody"}))
    assert [(each["rank"], each["container"]) for each in found] == [
        (2, "node"), (2, "side"), (2, "prepare"), (10, "node"), (10, "side"), (10, "prepare"),
    ]  # fmt: skip
    first = found[0]
    assert (first["main"], first["step"], first["phase"], first["restarts"]) == (True, "node", "Failed", 2)
    assert (first["state"], first["reason"], first["exit_code"]) == ("terminated", "OOMKilled", 137)
    assert (found[1]["state"], found[2]["init"]) == ("waiting", True)
