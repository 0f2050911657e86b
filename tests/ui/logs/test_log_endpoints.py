"""Logs over the API of the page: containers, windows, search, changes, and the whole text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from calls import call
from factories import cluster_in_memory, pod, runtime, trainjob
from log_cluster import LogCluster, line
from support.waiting import eventually

from trainwright.api.errors import Forbidden, NotFound
from trainwright.submission.jobs_client import JobsClient
from trainwright.ui.call import Call
from trainwright.ui.logs.endpoints import LogEndpoints, show_containers

Json = dict[str, Any]
LOG_PATH = {"namespace": "default", "pod": "p", "container": "main"}


@pytest.fixture
def endpoints() -> Iterator[LogEndpoints]:
    made = LogEndpoints()
    yield made
    made.close()


def asked(cluster: LogCluster, **query: Any) -> Call:
    return call(JobsClient.of(cluster), LOG_PATH, uid="u", **query)  # type: ignore[arg-type]


def all_read(endpoints: LogEndpoints, cluster: LogCluster) -> Json:
    eventually(lambda: endpoints.show_lines(asked(cluster))["ended"])
    return endpoints.show_lines(asked(cluster))


def log(count: int) -> LogCluster:
    return LogCluster([b"".join(line(number) for number in range(count))], running=False)


def test_a_window_has_lines_and_their_times(endpoints: LogEndpoints) -> None:
    cluster = log(1000)
    all_read(endpoints, cluster)
    answer = endpoints.show_lines(asked(cluster, **{"from": 400, "count": 3}))
    assert answer["lines"] == ["line 400", "line 401", "line 402"]
    assert answer["times"][0] == line(400).split()[0].decode()
    assert (answer["from"], answer["total"], answer["state"], answer["partial"]) == (400, 1000, "ended", None)
    assert endpoints.show_lines(asked(cluster, last=1, count=2))["lines"] == ["line 998", "line 999"]
    assert endpoints.show_lines(asked(cluster, **{"from": 5000}))["lines"] == []


def test_hostile_text_is_data(endpoints: LogEndpoints) -> None:
    cluster = LogCluster([line(0, "<script>\x07\u202e\x1b[31m") + b"2026-01-02T03:00:01Z \xff\xfe\x00\n"], running=False)
    answer = all_read(endpoints, cluster)
    assert answer["lines"] == ["<script>\\x07\\u202e", "\ufffd\ufffd\\x00"]
    orjson.dumps(answer)


def test_a_log_that_may_not_be_read_is_a_state_and_can_be_read_again(endpoints: LogEndpoints) -> None:
    cluster = LogCluster([Forbidden("pods/log is forbidden")], final=line(0))
    answer = all_read(endpoints, cluster)
    assert (answer["state"], answer["total"]) == ("forbidden", 0)
    endpoints.show_lines(asked(cluster, again=1))
    eventually(lambda: endpoints.show_lines(asked(cluster))["lines"] == ["line 0"])


def test_search_answers_in_both_directions(endpoints: LogEndpoints) -> None:
    cluster = log(300)
    all_read(endpoints, cluster)
    answer = endpoints.search(asked(cluster, text="LINE 2?7$", expression=1))
    assert answer == {"lines": [7, 27], "next": 300, "done": True, "total": 300}
    answer = endpoints.search(asked(cluster, text="line 1", backward=1, limit=1, **{"from": 150}))
    assert answer["lines"] == [149]
    assert endpoints.search(asked(cluster, text="LINE", case=1))["lines"] == []
    assert endpoints.search(asked(cluster, text="line", until=5))["lines"] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="not a regular expression"):
        endpoints.search(asked(cluster, text="(", expression=1))


@pytest.mark.parametrize("query", [{"from": "-1"}, {"from": "1e9"}, {"count": "x"}, {"restart": "9" * 30}, {"from": "٣"}])
def test_numbers_of_the_query_are_checked(endpoints: LogEndpoints, query: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        endpoints.show_lines(asked(log(1), **query))


def test_the_uid_of_the_pod_is_needed(endpoints: LogEndpoints) -> None:
    with pytest.raises(ValueError, match="uid: expected the UID"):
        endpoints.show_lines(call(JobsClient.of(log(1)), LOG_PATH))  # type: ignore[arg-type]


def test_the_stream_reports_progress_and_the_end(endpoints: LogEndpoints) -> None:
    cluster = log(10)

    async def follow() -> list[Json]:
        found: list[Json] = []
        stream = endpoints.follow(asked(cluster))
        async for message in stream:
            found.append(message)
            if message["ended"]:
                await stream.aclose()
                break
        return found

    messages = asyncio.run(asyncio.wait_for(follow(), 10))
    assert messages[-1] == {
        "type": "log",
        "total": 10,
        "bytes": 70,
        "state": "ended",
        "message": "",
        "ended": True,
        "partial": None,
    }


def test_the_stream_ends_with_the_server(endpoints: LogEndpoints) -> None:
    async def follow() -> None:
        async for _ in endpoints.follow(asked(log(1))):
            endpoints.close()

    asyncio.run(asyncio.wait_for(follow(), 10))


def test_the_whole_text_can_be_downloaded(endpoints: LogEndpoints) -> None:
    cluster = log(5000)
    all_read(endpoints, cluster)

    async def text(**query: Any) -> bytes:
        return b"".join([part async for part in endpoints.download(asked(cluster, **query)).body_iterator])  # type: ignore[misc]

    assert asyncio.run(text()) == b"".join(b"line %d\n" % number for number in range(5000))
    assert asyncio.run(text(times=1)) == b"".join(line(number) for number in range(5000))


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
