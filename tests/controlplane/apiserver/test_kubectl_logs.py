"""`kubectl logs` with every option, on a node that runs real processes."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3
from support.waiting import eventually

pytestmark = [
    pytest.mark.medium,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")


@pytest.fixture(scope="module")
def pod(entered: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A pod that fails once, then says four lines with two seconds after the second, and a half one."""
    marker = tmp_path_factory.mktemp("logs") / "tried"
    script = f"[ -e {marker} ] || {{ touch {marker}; echo first attempt; exit 1; }}"
    script += "; echo one; echo two >&2; sleep 2.2; echo three; echo four >&2; printf half; sleep 1000"
    entered.run("said", script, restartPolicy="OnFailure")
    eventually(lambda: b"half" in entered.kubectl("logs", "said").stdout)
    return entered


def lines(pod: Any, *arguments: str) -> list[str]:
    return pod.kubectl("logs", "said", *arguments).stdout.decode().splitlines()


def test_the_whole_log_and_its_tail(pod: Any) -> None:
    assert sorted("".join(lines(pod))) == sorted("onetwothreefourhalf")
    assert len(lines(pod, "--tail=1")) == 1
    assert lines(pod, "--tail=0") == []
    assert lines(pod, "--limit-bytes=2") in (["on"], ["tw"])
    assert lines(pod, "--previous") == lines(pod, "-c", "main", "-p", "--tail=1") == ["first attempt"]


def test_times_are_those_of_the_lines(pod: Any) -> None:
    stamped = [line.split(" ", 1) for line in get(pod, "timestamps=true&stream=Stdout").data.decode().splitlines()]
    assert all(STAMP.match(f"{stamp} ") for stamp, _ in stamped)
    times = {text: datetime.fromisoformat(stamp) for stamp, text in stamped}
    assert list(times) == ["one", "three", "half"]
    assert timedelta(seconds=2.1) < times["three"] - times["one"] < timedelta(seconds=10)
    # kubectl sends whole seconds; one of them lies between the two.
    since = times["three"].replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert sorted("".join(lines(pod, f"--since-time={since}"))) == sorted("threefourhalf")
    assert lines(pod, "--since=1h") == lines(pod)
    eventually(lambda: datetime.now(UTC) - times["half"] > timedelta(seconds=1.1))
    assert lines(pod, "--since=1s") == []


def test_a_followed_log_ends_with_its_container(entered: Any, tmp_path: Path) -> None:
    go = tmp_path / "go"
    entered.run("followed", f"echo begun; until [ -e {go} ]; do sleep 0.1; done; echo ended; printf 'no newline'")
    with entered.started("logs", "-f", "followed", "--timestamps") as kubectl:
        assert STAMP.sub("", kubectl.stdout.readline().decode()) == "begun\n"
        go.touch()
        rest, _ = kubectl.communicate(timeout=20)
    assert STAMP.sub("", rest.decode()) == "ended\nno newline"


def get(pod: Any, query: str) -> Any:
    pool = urllib3.PoolManager(ca_certs=str(pod.plane._credentials.authority), retries=False)
    url = f"{pod.url}/api/v1/namespaces/default/pods/said/log?{query}"
    return pool.request("GET", url, headers={"Authorization": f"Bearer {pod.user['token']}"})


def test_one_stream_of_two(pod: Any) -> None:
    assert get(pod, "stream=Stdout&insecureSkipTLSVerifyBackend=true").data == b"one\nthree\nhalf"
    assert get(pod, "stream=Stderr").data == b"two\nfour\n"
    assert get(pod, "stream=All").data == get(pod, "").data


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("stream=Both", 422, 'stream: Unsupported value: "Both": supported values: "All", "Stdout", "Stderr"'),
        ("stream=Stdout&tailLines=1", 422, "`tailLines` and specific `stream` are mutually exclusive for now"),
        ("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", 422, "at most one of `sinceTime` or `sinceSeconds` may be specified"),
        ("sinceTime=yesterday", 400, 'parsing time "yesterday"'),
        ("sinceTime=2026-01-02T03:04:05", 400, "parsing time"),
        ("sinceSeconds=0", 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
    ],
)
def test_invalid_log_options_are_refused(pod: Any, query: str, code: int, message: str) -> None:
    answer = get(pod, query)
    assert answer.status == code
    assert message in answer.json()["message"]
