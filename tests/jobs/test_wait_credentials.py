"""Credentials that expire while a job is waited for: those that can be renewed are, a static one ends the wait soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories import train_request
from support.running_plane import running_plane
from support.waiting import eventually

from trainwright.api.errors import ApiError, Forbidden, ServiceUnavailable, Unauthorized
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, name_of
from trainwright.cluster import connect
from trainwright.cluster.protocol import Listing
from trainwright.cluster.reflector import Reflector
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import Identity, Submission, submit_or_adopt, wait_for
from trainwright.jobs.diagnosis.exit_codes import ExitCode, exit_code_of
from trainwright.jobs.wait import job_watch
from trainwright.jobs.wait.job_observer import WaitSettings
from trainwright.jobs.wait.job_watch import check_reachable

OLD, NEW = "the-old-token-of-the-test", "the-new-token-of-the-test"


class Server:
    """An embedded API server that takes one token, and jobs that nobody works on."""

    def __init__(self, plane: ControlPlane, folder: Path):
        self._plane, self.folder = plane, folder
        self.take(OLD)

    def take(self, token: str) -> None:
        self._plane._tokens._admin_token = token.encode()

    def kubeconfig(self, user: Obj) -> Path:
        content = yaml.safe_load(self._plane._home.kubeconfig.read_text())
        content["users"][0]["user"] = user
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return path

    def complete(self, job: Obj) -> None:
        entry = {"type": "Complete", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        patch = {"status": {"conditions": [entry]}}
        self._plane.cluster.patch(TRAINJOB, name_of(job), patch, "default", subresource="status")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with running_plane(tmp_path_factory.mktemp("plane"), node=False) as plane:
        yield plane


@pytest.fixture
def server(plane: ControlPlane, tmp_path: Path) -> Server:
    return Server(plane, tmp_path)


class Wait:
    """`wait_for` in a thread."""

    def __init__(self, cluster: Any, job: Obj):
        self.outcome: Any = None
        began = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(cluster, job, began), daemon=True)
        self._thread.start()
        assert began.wait(10)

    def _run(self, cluster: Any, job: Obj, began: threading.Event) -> None:
        try:
            # The watch asks again soon, with its credentials.
            settings = WaitSettings(poll_seconds=0.05, connection_seconds=1)
            self.outcome = wait_for(cluster, job, settings, on_event=lambda _: began.set())
        except ApiError as error:
            self.outcome = error

    def end(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.outcome


def submitted(cluster: Any, run: str) -> Obj:
    request = train_request(runtime="torch-distributed", command=["true"])
    return submit_or_adopt(Submission(cluster, request, Identity("o", run, "s"), "default")).trainjob


def token_file(folder: Path) -> tuple[Obj, Callable[[str], object]]:
    (folder / "token").write_text(OLD)
    return {"tokenFile": str(folder / "token")}, (folder / "token").write_text


def exec_plugin(folder: Path) -> tuple[Obj, Callable[[str], object]]:
    """As cloud providers have them: a command that prints the token of the moment."""
    _, change = token_file(folder)
    version = "client.authentication.k8s.io/v1"
    plugin = folder / "plugin"
    answer = f'{{"apiVersion": "{version}", "kind": "ExecCredential", "status": {{"token": "%s"}}}}'
    plugin.write_text(f"#!/bin/sh\nprintf '{answer}' \"$(cat {folder}/token)\"\n")
    plugin.chmod(0o755)
    return {"exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}}, change


@pytest.mark.medium
@pytest.mark.parametrize("source", [token_file, exec_plugin], ids=["token-file", "exec-plugin"])
def test_a_token_that_is_renewed_at_its_source_is_renewed_while_waiting(server: Server, source: Any, caplog: Any) -> None:
    user, change = source(server.folder)
    cluster = connect(server.kubeconfig(user))
    job = submitted(cluster, source.__name__.replace("_", "-"))
    wait = Wait(cluster, job)
    server.take(NEW)  # the old one has expired; its source does not have the new one yet
    eventually(lambda: "event=watch_failed" in caplog.text, 20)
    change(NEW)
    server.complete(job)
    assert wait.end()["metadata"]["uid"] == job["metadata"]["uid"]
    assert OLD not in caplog.text
    assert NEW not in caplog.text


@pytest.mark.medium
def test_a_static_token_that_has_expired_ends_the_wait_with_the_code_for_access(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert job_watch.ACCESS_LOST_SECONDS == 180, "minutes, not half an hour"
    monkeypatch.setattr(job_watch, "ACCESS_LOST_SECONDS", 1)
    cluster = connect(server.kubeconfig({"token": OLD}))
    wait = Wait(cluster, submitted(cluster, "static"))
    server.take(NEW)
    error = wait.end()
    assert isinstance(error, Unauthorized)
    assert error.message.startswith("TrainJob default/")
    assert "goes on, but is not watched any more: the API server has rejected the credentials" in error.message
    assert "renew them" in error.message
    assert exit_code_of(error) is ExitCode.forbidden


class Answers:
    """A reflector's cluster that answers in turn, the last one for ever; the clock is the test's."""

    def __init__(self, *answers: Any):
        self._answers = list(answers)

    def list(self, *_: Any, **__: Any) -> Listing:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Listing([], "1")

    def watch(self, *_: Any, **__: Any) -> Iterator[Any]:
        raise Unauthorized("the token has expired")


JOB = {"metadata": {"name": "job", "namespace": "default"}}
STRAY, GONE, DOWN = Unauthorized("who are you?"), Forbidden("not you any more"), ServiceUnavailable("down")


@pytest.mark.parametrize(
    ("answers", "step_seconds", "expected"),
    [
        (([], STRAY, [], STRAY), 50, None),  # a success in between
        (([], STRAY, DOWN, STRAY), 50, None),
        (([], DOWN, DOWN, DOWN, DOWN, STRAY), 50, None),  # unreachable for long, and then one refusal
        (([], STRAY, STRAY, STRAY, STRAY), 50, Unauthorized),
        ((STRAY, STRAY, STRAY, STRAY), 50, Unauthorized),
        ((STRAY,), 50, None),
        (([], GONE, GONE), 50, None),
        (([], GONE, GONE, GONE, GONE), 50, Forbidden),
        ((GONE,), 1, Forbidden),  # never was allowed
        ((GONE,), 0.5, None),  # asked again
        ((DOWN, GONE, GONE), 20, None),  # restarted
        ((DOWN, GONE, GONE, GONE), 20, Forbidden),
        (([], DOWN, DOWN, DOWN), 1000, ServiceUnavailable),
    ],
)
def test_when_a_wait_ends(
    answers: Any, step_seconds: float, expected: type[ApiError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    steps = iter(range(len(answers) - 1))

    class StopAfterSteps(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now += step_seconds
            if next(steps, None) is None:
                self.set()
            return self.is_set()

    reflector = Reflector(Answers(*answers), TRAINJOB, handler=lambda *_: None, stop=StopAfterSteps())
    reflector.run()
    if expected is None:
        check_reachable(reflector, JOB)
    else:
        with pytest.raises(expected):
            check_reachable(reflector, JOB)
