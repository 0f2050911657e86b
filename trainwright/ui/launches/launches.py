"""Starts, lists, stops and resumes fine-tunings, each in a process and a folder of its own.

The folder has the request, the events, and a lock that the process holds. Whoever holds the lock runs the chain, so a run is never
started twice, and a process that was killed does not seem to run.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from trainwright.api.errors import AlreadyExists, NotFound, ServiceUnavailable
from trainwright.api.times import now
from trainwright.flock import is_held, try_lock
from trainwright.jobs.state.identity import COMMAND_LINE, Identity
from trainwright.steps.fine_tuning import STEPS
from trainwright.ui.private_file import write_private

MODULE = "trainwright.ui.launches.program"
_START_SECONDS, _POLL_SECONDS = 20.0, 0.02
_MAX_SHOWN = 200
LaunchState = Literal["running", "succeeded", "failed", "interrupted", "lost"]
log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?")
_MAX_EVENTS_BYTES = 4 * 1024 * 1024
_MAX_LINE = 2000


@dataclass
class StepView:
    """A step of a chain; `state` is waiting, running, done, failed or stopped."""

    name: str
    state: str = "waiting"
    since: str = ""
    until: str = ""
    note: str = ""


@dataclass
class LaunchView:
    """A run as the page shows it. `lost` is a process that has ended without saying so, as after a power failure: the run can be
    resumed. `trainjob` is the name of its first TrainJob, empty before it is submitted."""

    run: str
    namespace: str
    state: LaunchState = "lost"
    began: str = ""
    ended: str = ""
    steps: list[StepView] = field(default_factory=lambda: [StepView(name) for name in STEPS])
    trainjob: str = ""
    message: str = ""
    warnings: list[str] = field(default_factory=list)
    result: dict[str, Any] | None = None


class Launches:
    """The fine-tunings in `root`, all on one cluster: a run must not be resumed on another one.

    `host` is its API server, `kubeconfig` and `mode` are those that the processes connect with.
    """

    def __init__(
        self,
        root: Path,
        *,
        host: str = "",
        kubeconfig: str = "",
        mode: str = "",
        start: Callable[[LaunchFolder], None] | None = None,
    ):
        self._root, self._host, self._kubeconfig, self._mode = root, host, kubeconfig, mode
        self._start = start or _start

    def launch(self, run: str, namespace: str, parameters: dict[str, Any]) -> LaunchView:
        """Start a run, and return it once its process runs. Raises AlreadyExists for a run that exists, BadLaunch, OSError."""
        folder = LaunchFolder(self._root, run)
        if (folder.path / "request.json").exists():
            raise AlreadyExists(f"run {run} exists already; resume it, or choose another id")
        folder.write_request(LaunchRequest(run, namespace, parameters, self._host, self._kubeconfig, self._mode))
        log.info("event=page_run_started run=%s namespace=%s", run, namespace)
        self._start(folder)
        return view_of(folder)

    def resume(self, run: str) -> LaunchView:
        """Start the process of a run again, unless it runs. Raises NotFound, BadLaunch, OSError."""
        folder = self._existing(run)
        if folder.process() is None:
            request = replace(
                folder.request(), host=self._host, kubeconfig=self._kubeconfig, mode=self._mode
            )  # a port can have changed
            folder.write_request(request)
            log.info("event=page_run_resumed run=%s", run)
            self._start(folder)
        return view_of(folder)

    def stop(self, run: str) -> LaunchView:
        """Interrupt a run: its training is suspended. Raises NotFound, BadLaunch."""
        folder = self._existing(run)
        process = folder.process()
        if process:
            log.info("event=page_run_stopped run=%s", run)
            try:
                os.kill(process, signal.SIGINT)
            except ProcessLookupError:  # it has ended meanwhile
                log.debug("event=page_run_ended_meanwhile run=%s", run)
        return view_of(folder)

    def stop_all(self) -> None:
        """Interrupt all runs, as before the cluster stops."""
        for each in self.list():
            if each.state == "running":
                self.stop(each.run)

    def list(self) -> list[LaunchView]:
        """Return the runs, the latest first."""
        if not self._root.is_dir():  # nothing was started yet
            return []
        found = []
        for path in self._root.iterdir():
            try:
                found.append(view_of(LaunchFolder(self._root, path.name)))
            except BadLaunch as error:  # a folder that somebody has damaged: the others are listed all the same
                log.debug("event=page_run_not_read folder=%s error=%s", path, error)
        return sorted(found, key=lambda each: each.began, reverse=True)[:_MAX_SHOWN]

    def get(self, run: str) -> LaunchView:
        """Return one run. Raises NotFound, BadLaunch."""
        return view_of(self._existing(run))

    def _existing(self, run: str) -> LaunchFolder:
        folder = LaunchFolder(self._root, run)
        if not (folder.path / "request.json").exists():
            raise NotFound(f"there is no run {run}")
        return folder


def _start(folder: LaunchFolder) -> None:
    """Start the process, and wait until it holds the lock or has ended. Raises ServiceUnavailable if it does neither."""
    with open(folder.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE, str(folder.path)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if folder.process() is not None or process.poll() is not None:  # it has begun, or has ended already
            return
        time.sleep(_POLL_SECONDS)
    process.kill()
    raise ServiceUnavailable(f"run {folder.run} did not start within {_START_SECONDS:.0f} seconds; see {folder.log}")


def view_of(folder: LaunchFolder) -> LaunchView:
    """Return how a run is, from what its process has recorded. Raises BadLaunch."""
    request = folder.request()
    is_running = folder.process() is not None  # before the events: one that ends in between has recorded how
    view = LaunchView(request.run, request.namespace)
    for event in folder.events():
        _apply(view, event)
    if is_running:
        view.state, view.ended, view.message = "running", "", ""
    wanted = {"promote": request.parameters.get("promote"), "register": request.parameters.get("registry")}
    view.steps = [step for step in view.steps if wanted.get(step.name, True)]
    return view


def _apply(view: LaunchView, event: dict[str, Any]) -> None:
    kind, at = event["type"], str(event.get("at") or "")
    step = next((one for one in view.steps if one.name == event.get("step")), None)
    if kind == "started":
        view.began, view.ended, view.state, view.message, view.warnings = view.began or at, "", "lost", "", []
        view.steps = [StepView(name) for name in STEPS]
    elif kind == "begin" and step is not None:
        step.state, step.since = "running", at
        if step.name == "train":
            view.trainjob = Identity(COMMAND_LINE, view.run, "train").name()
    elif kind == "end" and step is not None:
        step.state, step.until, step.note = "done", at, str(event.get("note") or "")
    elif kind == "memory" and not event.get("fits", True):
        view.warnings.append(str(event.get("text") or ""))
    elif kind == "succeeded":
        result = event.get("result")
        view.state, view.ended, view.result = "succeeded", at, result if isinstance(result, dict) else None
    elif kind in ("failed", "interrupted"):
        view.state = "failed" if kind == "failed" else "interrupted"
        view.ended, view.message = at, str(event.get("message") or "")
        if step is not None:
            step.state, step.until = "failed" if kind == "failed" else "stopped", at


class BadLaunch(ValueError):
    """A run id that cannot be the name of a folder, or a record that cannot be read."""


@dataclass(frozen=True)
class LaunchRequest:
    """What a process is started with. `host` is the API server of the page's cluster, and `kubeconfig` empty for that of the
    environment: the process makes sure that it leads there, since its current context may have changed."""

    run: str
    namespace: str
    parameters: dict[str, Any]
    host: str
    kubeconfig: str = ""
    mode: str = ""


class LaunchFolder:
    """The files of one run. Its name is the run id."""

    def __init__(self, root: Path, run: str):
        if not _NAME.fullmatch(run):
            raise BadLaunch(f"run: {run[:80]!r}: expected letters, digits, '-', '_' and '.', at most 128")
        self.path, self.run = root / run, run

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def _events(self) -> Path:
        return self.path / "events.jsonl"

    def write_request(self, request: LaunchRequest) -> None:
        """Create the folder with its request, readable only by its owner. Raises OSError."""
        write_private(self.path / "request.json", json.dumps(asdict(request)).encode())

    def request(self) -> LaunchRequest:
        """Return what was asked. Raises BadLaunch."""
        try:
            return LaunchRequest(**json.loads((self.path / "request.json").read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise BadLaunch(f"run {self.run}: its request cannot be read: {error}") from error

    def note(self, kind: str, **facts: Any) -> None:
        """Append an event. Raises OSError."""
        line = json.dumps({"at": now(), "type": kind, **facts}, ensure_ascii=False)
        with open(self._events, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(line + "\n")

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events so far; a line that is not whole, as after a full disk, is passed over."""
        try:
            with open(self._events, "rb") as file:
                content = file.read(_MAX_EVENTS_BYTES)
        except FileNotFoundError:
            return
        for line in content.split(b"\n"):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and isinstance(event.get("type"), str):
                yield event

    @contextmanager
    def running(self) -> Iterator[bool]:
        """Hold the lock, with the id of this process in it; yields False if another process holds it. Raises OSError."""
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not try_lock(descriptor):  # a process of this run is alive
                yield False
                return
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            yield True
        finally:
            os.close(descriptor)

    def process(self) -> int | None:
        """Return the id of the process that holds the lock, 0 if it has not noted it yet; None if nobody does."""
        if not is_held(self.path / "lock"):  # its process has ended: the number may be another one's now
            return None
        noted = (self.path / "lock").read_bytes()[:20]
        return int(noted) if noted.isdigit() else 0


def cut(text: str) -> str:
    """Return a line that is short enough for a record."""
    return text[:_MAX_LINE]
