"""Feeds the metrics of one training to its tracking tools, from the thread that waits for the job, without ever keeping it.

Each tool has a thread, which builds its environment and writes to its process; what it cannot take is dropped with a warning.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from trainwright.jobs.diagnosis.errors import Cancelled, TrainJobError
from trainwright.jobs.wait.job_events import JobEvents, MetricChanges
from trainwright.programs import Redaction, variables_for
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import ToolError
from trainwright.tracking.targets import REQUIREMENTS, VARIABLES, TrackedRun, TrackingTarget

log = logging.getLogger(__name__)
PROGRAM = Path(__file__).with_name("program.py")
_MOST_WAITING = 10_000
"""Lines that wait for a tool that is being installed or is slow: hours of a training."""
_END_SECONDS, _CANCELLED_SECONDS = 60.0, 2.0
"""How long a tool may take to write the end of the run. A cancelled step has hardly a second."""
_LAST_LINES = 10
_POINTS_A_LINE = 100
_FOR_THE_LOG = "> "


class JobTracker(Protocol):
    """A callback for job events, which is told of the job that they are of."""

    def __call__(self, events: JobEvents) -> None: ...

    def begin(self, uid: str) -> None:
        """Begin the runs of the tools for the TrainJob with this UID; a preempted step goes on with another one."""


@contextmanager
def tracking(
    run: TrackedRun,
    targets: Sequence[TrackingTarget],
    *,
    folder: Path | None = None,
    write: Callable[[str], object] = lambda _line: None,
    cache: Path | None = None,
    program: Path = PROGRAM,
) -> Iterator[JobTracker]:
    """Yield a callback for the events of a job, which sends its metrics to the targets; the run ends with the block.

    The run begins with `begin`, else with the first metrics: a run of the same TrainJob is continued, and any other left alone.

    Args:
        run: What the tools show.
        targets: The tools; without any, the callback does nothing.
        folder: For the offline runs of W&B. None: the current folder.
        write: Called with a line when a run of a tool begins, or a tool fails.
        cache: Folder of the tools' environments, see `tool_environment`.
        program: Run by the interpreter of a tool's environment, with the tool's name; it reads lines of JSON.

    A tool that cannot be installed or fails is reported, and no error. What `write` raises is raised by the callback, in the
    thread that waits.
    """
    feeds = [_Feed(target, run, folder, write, cache, program) for target in targets]
    status = "FAILED"
    try:
        yield _Observer(feeds)
        status = "FINISHED"
    except BaseException as error:
        if isinstance(error, Cancelled) or not isinstance(error, Exception):
            status = "KILLED"
        raise
    finally:
        for feed in feeds:
            feed.end(status)
        deadline = time.monotonic() + (_CANCELLED_SECONDS if status == "KILLED" else _END_SECONDS)
        for feed in feeds:
            feed.join(max(0.0, deadline - time.monotonic()))


class _Observer:
    """Passes on the metrics that have changed, each with its step, and at the end those that the reports have missed."""

    def __init__(self, feeds: Sequence[_Feed]):
        self._feeds, self._changes = feeds, MetricChanges()

    def __call__(self, events: JobEvents) -> None:
        for feed in self._feeds:
            feed.raise_if_unread()
        points = list(self._changes.of(events))
        for at in range(0, len(points), _POINTS_A_LINE):
            for feed in self._feeds:
                feed.put({"points": points[at : at + _POINTS_A_LINE], "seconds": time.time()})

    def begin(self, uid: str) -> None:
        for feed in self._feeds:
            feed.begin(uid)


class _Feed:
    """One tool: a queue, a thread, and the process that it writes to."""

    def __init__(
        self,
        target: TrackingTarget,
        run: TrackedRun,
        folder: Path | None,
        write: Callable[[str], object],
        cache: Path | None,
        program: Path,
    ):
        self._target, self._write, self._cache, self._program = target, write, cache, program
        self._lines: queue.Queue[dict[str, Any]] = queue.Queue(_MOST_WAITING)
        self._dropped = 0
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._is_over = False
        self._unread: TrainJobError | None = None
        about = {"name": run.name, "step": run.step, "project": run.project, "address": target.address}
        offline = str(folder / target.tool) if folder is not None else ""
        self._about = {**about, "parameters": dict(run.parameters), "tags": dict(run.tags), "folder": offline}
        self._id, self._has_begun = run.id, False
        self._thread = threading.Thread(target=self._run, name=f"tracking-{target.tool}", daemon=True)
        self._thread.start()

    def begin(self, uid: str) -> None:
        """Hand on the run, or that it goes on with another job."""
        if self._has_begun:
            self.put({"job": uid})
            return
        self._has_begun = True
        unique = hashlib.sha256(f"{self._id} {uid}".encode()).hexdigest()[:16] if uid else self._id
        self.put({**self._about, "job": uid, "id": unique})

    def put(self, line: dict[str, Any]) -> None:
        """Hand on a line; one that does not fit is dropped. After the tool's end there is nobody who takes it."""
        if not self._has_begun and "points" in line:
            self.begin("")
        if self._is_over:
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def end(self, status: str) -> None:
        """Hand on the end, in the place of values if there is no other."""
        with contextlib.suppress(queue.Empty):
            while self._lines.full():
                self._lines.get_nowait()
                self._dropped += 1
        self.put({"end": status})

    def raise_if_unread(self) -> None:
        """Raise what reporting has raised in another thread."""
        error, self._unread = self._unread, None
        if error is not None:
            raise error

    def join(self, seconds: float) -> None:
        """Wait for the end of the process; one that takes longer is killed."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._report(f"has not written everything within {seconds:.0f} s")
            if self._process is not None:
                self._process.kill()
        if self._dropped:
            self._report(f"was too slow: {self._dropped} values were dropped")

    def _run(self) -> None:
        try:
            python = tool_environment(REQUIREMENTS[self._target.tool], name=self._target.tool, cache=self._cache)
            self._feed(python)
        except (ToolError, OSError) as error:
            self._report(f"does not get the metrics: {error}")
        finally:
            self._is_over = True

    def _feed(self, python: Path) -> None:
        environment = {**variables_for(os.environ, VARIABLES[self._target.tool]), "PYTHONUTF8": "1"}
        redact = Redaction(environment)
        with subprocess.Popen(
            [str(python), "-P", str(self._program), self._target.tool],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as process:
            self._process = process
            reader = threading.Thread(target=self._read, args=(process, redact), daemon=True)
            reader.start()
            is_open = True
            while is_open:
                line = self._lines.get()
                is_open = _send(process, line) and "end" not in line
            code = process.wait()
            reader.join()
        if code:
            said = " | ".join(self._last)
            self._report(f"ended with exit code {code}: {said}" if said else f"ended with exit code {code}")

    def _read(self, process: subprocess.Popen[str], redact: Redaction) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            text = redact(line.rstrip())
            self._last.append(text)
            if text.startswith(_FOR_THE_LOG):
                self._report(text.removeprefix(_FOR_THE_LOG))
            else:
                log.debug("event=tracking tool=%s line=%r", self._target.tool, text)

    def _report(self, text: str) -> None:
        try:
            self._write(f"tracking: {self._target.tool}: {text}")
        except TrainJobError as error:  # nobody reads this step's log any more, which ends the wait
            self._unread = error


def _send(process: subprocess.Popen[str], line: dict[str, Any]) -> bool:
    """Write a line; returns whether the process still reads."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        if "end" in line:
            process.stdin.close()
    except OSError:
        with contextlib.suppress(OSError):  # what is left in its buffer
            process.stdin.close()
        return False
    return True
