"""What this node does for one container of a pod: observes its runs, starts, probes and stops them.

It knows nothing that its files, or the pod's published status, do not say too, except for probes and hooks that are under way.
A stop runs the preStop hook, sends SIGTERM when it is the container's turn, and SIGKILL when the grace period is over.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from trainwright.api.objects import Obj, name_of, namespace_of, uid_of
from trainwright.backoff import Backoff
from trainwright.controlplane.node.container import ContainerRun, kill_run_processes, latest_run, run_of
from trainwright.controlplane.node.container_context import ContainerContext, NodeServices, with_message
from trainwright.controlplane.node.container_image import CannotStart
from trainwright.controlplane.node.container_start import ContainerStart
from trainwright.controlplane.node.handlers import CommandResult, Outcome, ProbeRunner, Target, run_hook
from trainwright.controlplane.node.lifecycle import events
from trainwright.controlplane.node.lifecycle.container_state import (
    START_ERROR,
    STATUS_UNKNOWN,
    Blocked,
    ContainerState,
    Role,
    Run,
    Termination,
    published_status,
)
from trainwright.controlplane.node.lifecycle.decision import Launch, Stop, grace_seconds
from trainwright.controlplane.node.lifecycle.events import PodEvent
from trainwright.controlplane.node.lifecycle.probes import Health
from trainwright.controlplane.node.lifecycle.restarts import restart_policy
from trainwright.controlplane.node.supervisor.child_command import child_command, signal_child
from trainwright.controlplane.node.supervisor.exec_child import CANNOT_START, NOT_EXECUTABLE, NOT_FOUND

_BACKOFF = Backoff(1.0, 10.0)
"""Between attempts to start a container that cannot be started, for example for want of a ConfigMap."""
_HOOK_SECONDS = 3600.0
MINIMUM_SECONDS = 2.0
"""What a container has after its preStop hook and the wait for its turn. Source: minimumGracePeriodInSeconds of the kubelet."""
_OUTPUT_BYTES = 64 * 1024
_DRAIN_SECONDS = 1.0
log = logging.getLogger(__name__)


class ContainerKeeper:
    """Used by the thread of one pod's worker. `pod` returns the latest version of the pod, `changed` wakes the worker."""

    def __init__(self, spec: Obj, role: Role, services: NodeServices, pod: Callable[[], Obj], changed: Callable[[], None]):
        self.name: str = spec["name"]
        self._spec, self._role, self._services = spec, role, services
        self._pod, self._changed = pod, changed
        self._folder = services.pods_folder / uid_of(pod())
        self._start = ContainerStart(spec, services, self._folder)
        self._current: _Current | None = None
        self._launched: tuple[int, ContainerContext] | None = None
        self._blocked: Blocked | None = None
        self._failures = 0

    def observe(self) -> ContainerState:
        """Return the container's state as its files and its probes say."""
        state = ContainerState(self.name, self._role, self._spec, blocked=self._blocked)
        run = latest_run(self.name, self._folder)
        if run is None:
            return state  # it waits for its turn, or could not be started
        observed = run.observed(uid_of(self._pod()))
        current = self._follow(run, observed)
        if current.ended is None and observed.ended is not None:
            current.abandon.set()
            if observed.ended.reason == STATUS_UNKNOWN:  # its supervisor cannot end what is left
                kill_run_processes(run, uid_of(self._pod()))
            current.ended = with_message(self._spec, run, observed.ended)
        observed = replace(observed, ended=current.ended, is_held=current.post_start is not None)
        if observed.attempt:
            before = run_of(self.name, observed.attempt - 1, self._folder)
            if (ended := before.termination() if before.folder.exists() else None) is not None:
                state = replace(state, previous=with_message(self._spec, before, ended))
        health = current.probes.health() if current.probes is not None else Health(True, True)
        return replace(
            state,
            run=observed,
            is_startup_passed=health.is_startup_passed,
            is_ready=health.is_ready,
            failed_probe=health.failed,
            is_replaced=current.is_replaced,
        )

    def launch(self, launch: Launch) -> bool:
        """Start the container, or note why it cannot be started. Returns whether it was started."""
        pod = self._pod()
        self._release()
        try:
            context = self._start.start(pod, launch, self._record)
        except CannotStart as error:  # shown as waiting; tried again, as what is missing may come
            self._failures += error.retry_seconds is None
            pause = _BACKOFF.seconds(self._failures) if error.retry_seconds is None else error.retry_seconds
            self._blocked = Blocked(error.reason, str(error), time.time() + pause)
            return False
        self._blocked, self._failures = None, 0
        self._launched = (launch.attempt, context)
        log.info(
            "container started pod=%s/%s container=%s attempt=%d", namespace_of(pod), name_of(pod), self.name, launch.attempt
        )
        return True

    def stop(self, stop: Stop) -> None:
        """Begin to stop the container, or hurry a stop that has begun."""
        current, now = self._current, time.monotonic()
        if current is None:
            return  # nothing runs, or its run has not been seen yet: the next step decides again
        if current.stop is not None:  # deleted again with less grace, or its turn has come
            current.stop.shorten(stop.grace_seconds, now)
            if not stop.waits:
                current.stop.take_turn()
            return
        self._record(events.about(stop.container, "Killing", stop.message))
        current.is_replaced = bool(stop.container.failed_probe) and restart_policy(self._pod(), stop.container) != "Never"
        hook = (self._spec.get("lifecycle") or {}).get("preStop")
        abandon = threading.Event()
        is_hooked = stop.container.is_running and stop.grace_seconds > 0
        running = self._run_hook(current, hook, stop.grace_seconds, abandon) if hook and is_hooked else None
        current.stop = ContainerStop(current.run, stop.grace_seconds, now, running, abandon, waits=stop.waits)
        self.advance()

    def advance(self) -> float | None:
        """Do what is due for the run. Returns in how many seconds to come again, or None if only a change calls for it."""
        current = self._current
        if current is None or current.ended is not None:
            return None  # an ended run is replaced by a decision, not here
        waits: list[float] = []
        if current.stop is not None:
            now = time.monotonic()
            at = current.stop.advance(now)
            if current.stop.failed_hook is not None:
                self._record(self._about("FailedPreStopHook", "PreStopHook failed", warning=True))
                current.stop.failed_hook = None
            if at is not None:
                waits.append(at - now)
        if current.probes is not None and current.post_start is None:  # probes wait for the hook
            advance = current.probes.advance if current.stop is None else current.probes.advance_stopping
            at = advance(time.time())
            if at is not None:
                waits.append(at - time.time())
        return min(waits, default=None)

    def is_quiet(self) -> bool:
        """Whether the run that was observed last goes on, or has ended; with a probe or a stop under way `advance` says when."""
        return self._current is not None and (self._current.ended is not None or self._current.run.is_alive())

    def announce_waiting(self, where: str) -> None:
        """Record, once per run, that the container waits for its restart. `where` names its pod."""
        if self._current is not None and not self._current.is_waiting_announced:
            self._current.is_waiting_announced = True
            self._record(events.backing_off(self._state(), where))

    def close(self) -> None:
        """Let go of probes and hooks that are under way; the processes stay."""
        self._release()

    def _follow(self, run: ContainerRun, observed: Run) -> _Current:
        """Return what belongs to this run; makes it when the run is first seen, and announces its start when that is seen."""
        if self._current is None or self._current.identity != observed.identity:
            self._release()
            is_ours = self._launched is not None and self._launched[0] == observed.attempt
            context = self._launched[1] if is_ours and self._launched is not None else None
            self._current = _Current(observed.identity, run, is_ours, threading.Event(), context)
        current = self._current
        if observed.started_at is not None and current.probes is None and observed.ended is None:
            self._begin(current, observed)
        elif current.is_new and observed.ended is not None:  # it has ended before it was seen to run
            current.is_new = False
            if observed.ended.reason == START_ERROR:
                self._record(self._about("Failed", f"Error: {observed.ended.message}", warning=True))
            else:
                self._record(self._about("Started", "Container started"))
        self._finish_post_start(current)
        return current

    def _begin(self, current: _Current, observed: Run) -> None:
        target = self._target(current, current.abandon)
        current.probes = ProbeRunner(
            self._spec,
            target,
            self._services.pool,
            started_at=observed.started_at or time.time(),
            is_restart=observed.attempt > 0,
            changed=self._changed,
            report=self._report_probe,
        )
        if current.is_new:
            current.is_new = False
            self._record(self._about("Started", "Container started"))
            if hook := (self._spec.get("lifecycle") or {}).get("postStart"):
                current.post_start = self._run_hook(current, hook, _HOOK_SECONDS, current.abandon)
        else:  # started by an earlier life of the node, which may have probed it
            status = published_status(self._pod(), self.name)
            if status.get("containerID") == observed.identity:
                current.probes.resume(was_started=bool(status.get("started")), was_ready=bool(status.get("ready")))

    def _finish_post_start(self, current: _Current) -> None:
        """A postStart hook that fails takes its container with it."""
        if current.post_start is None or current.is_post_start_failed or not current.post_start.done():
            return  # none, has failed before, or is running
        if current.post_start.result().is_success:
            current.post_start = None  # from now on the run is shown as running, and probed
            return
        current.is_post_start_failed = True
        self._record(self._about("FailedPostStartHook", "PostStartHook failed", warning=True))
        self.stop(Stop(self._state(), grace_seconds(self._pod()), "FailedPostStartHook"))

    def _run_hook(self, current: _Current, hook: Obj, timeout: float, stop: threading.Event) -> Future[Outcome]:
        future = self._services.pool.submit(run_hook, hook, self._target(current, stop), timeout)
        future.add_done_callback(lambda _: self._changed())
        return future

    def _target(self, current: _Current, stop: threading.Event) -> Target:
        def command(argv: list[str], timeout: float) -> CommandResult:
            if current.context is None:  # of an earlier life of this node
                current.context = self._start.context(self._pod(), current.run)
            return run_command(argv, current.context, current.run, timeout)

        return Target(self._spec, self._services.address_of(self._pod()), command, stop)

    def _report_probe(self, kind: str, outcome: Outcome) -> None:
        if outcome.is_success:
            self._record(events.probe_warning(self._state(), kind, outcome.output))
        else:
            self._record(events.probe_failed(self._state(), kind, outcome.output, is_error=outcome.is_success is None))

    def _release(self) -> None:
        if self._current is not None:
            self._current.abandon.set()
            self._current = None

    def _about(self, reason: str, message: str, *, warning: bool = False) -> PodEvent:
        return events.about(self._state(), reason, message, warning=warning)

    def _state(self) -> ContainerState:
        return ContainerState(self.name, self._role, self._spec)

    def _record(self, event: PodEvent) -> None:
        self._services.events.record(self._pod(), event)


@dataclass
class _Current:
    """The run that probes, hooks and a stop belong to."""

    identity: str
    run: ContainerRun
    is_new: bool
    """It was started by this life of the node, and its start was not announced yet."""
    abandon: threading.Event
    context: ContainerContext | None = None
    probes: ProbeRunner | None = None
    post_start: Future[Outcome] | None = None
    is_post_start_failed: bool = False
    stop: ContainerStop | None = None
    is_replaced: bool = False
    ended: Termination | None = None
    is_waiting_announced: bool = False


class ContainerStop:
    """Call `advance` whenever time has passed or something has changed. Times are those of one monotonic clock, in seconds.

    `hook` is the running preStop hook, if the container has one; `abandon` tells it that its time is over. One that `waits` is not
    signalled before `take_turn`, but for the end of its grace.
    """

    def __init__(
        self,
        run: ContainerRun,
        grace: float,
        now: float,
        hook: Future[Outcome] | None,
        abandon: threading.Event,
        *,
        waits: bool = False,
    ):
        self._run, self._hook, self._abandon, self._waits = run, hook, abandon, waits
        self._kill_at = now + max(grace, MINIMUM_SECONDS)
        self._is_told = self._is_killed = False
        self.failed_hook: Outcome | None = None
        """How the preStop hook failed, once it has."""

    def shorten(self, grace: float, now: float) -> None:
        """Kill sooner, if `grace` from now on is sooner: the pod was deleted again, with less grace."""
        self._kill_at = min(self._kill_at, now + max(grace, MINIMUM_SECONDS))

    def take_turn(self) -> None:
        """The containers that must end first have ended."""
        self._waits = False

    def advance(self, now: float) -> float | None:
        """Do what is due, and return when to come again; None after SIGKILL."""
        if not self._is_told:
            if self._hook is not None and self._hook.done():
                outcome, self._hook = self._hook.result(), None
                self.failed_hook = None if outcome.is_success else outcome
            if (self._hook is not None or self._waits) and now < self._kill_at:
                return self._kill_at
            self._abandon.set()
            self._kill_at = max(self._kill_at, now + MINIMUM_SECONDS)
            self._is_told = True
            self._run.signal(signal.SIGTERM)
        if now < self._kill_at:
            return self._kill_at
        if not self._is_killed:
            self._is_killed = True
            self._run.signal(signal.SIGKILL)
        return None


def run_command(argv: list[str], context: ContainerContext, run: ContainerRun, timeout: float) -> CommandResult:
    """Run a command in a container for at most `timeout` seconds; then it is killed with all that it started.

    Raises OSError if it cannot be started.
    """
    isolated_run = run.folder if context.is_isolated else None
    with child_command(argv, context.env, context.cwd, tty=False, isolated_run=isolated_run) as command:
        process = subprocess.Popen(
            command.argv,
            env=command.env,
            pass_fds=command.pass_fds,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:  # out of time: killed, without an exit code
        signal_child(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that left the group holds its output open
            process.communicate(timeout=_DRAIN_SECONDS)
        return CommandResult(None, b"")
    code = process.returncode
    if code in (NOT_FOUND, NOT_EXECUTABLE) and output.startswith(CANNOT_START.encode()):
        raise OSError(output.decode("utf-8", "replace").strip())
    return CommandResult(code if code >= 0 else 128 - code, output[:_OUTPUT_BYTES])
