"""A pod of containers that are a model: what their runs do is planned, and time goes from event to event.

It does with a decision what the node's executors do, and checks at each step what must always be true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from lifecycle_states import NOW, Obj, identity, pod_with

from trainwright.api.conditions import is_true
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role, Run, Termination, visible_states
from trainwright.controlplane.node.lifecycle.decision import TERMINAL, Decision, Ending, Launch, Stop, decide, ending_of
from trainwright.controlplane.node.lifecycle.pod_status import pod_status, timestamp
from trainwright.controlplane.node.lifecycle.restarts import restart_at, restart_policy

LEAST_GRACE = 2.0
PHASES = ("Pending", "Running", *TERMINAL)


@dataclass(frozen=True)
class RunPlan:
    """What a run does, in seconds from its start. None: it goes on until it is stopped; ignores SIGTERM; has no failing probe."""

    lasts: float | None = 1.0
    code: int = 0
    after_term: float | None = 0.1
    probe_fails: float | None = None
    cannot_start: bool = False


@dataclass(frozen=True)
class ContainerPlan:
    """A container, and what its runs do; the last plan is that of all later runs. Its startup probe takes `startup` seconds."""

    name: str
    role: Role
    runs: tuple[RunPlan, ...] = (RunPlan(),)
    startup: float = 0.0
    spec: Obj = field(default_factory=dict)


@dataclass
class Container:
    """The current run of a container: when it was launched and told to stop, and how the one before ended."""

    plan: ContainerPlan
    attempt: int = -1
    launched: float = math.inf
    backoff: float = 0.0
    term: float = math.inf
    kill: float = math.inf
    grace_ends: float = math.inf
    is_replaced: bool = False
    previous: Termination | None = None

    @property
    def run(self) -> RunPlan:
        return self.plan.runs[min(self.attempt, len(self.plan.runs) - 1)]

    @property
    def started(self) -> float:
        return self.launched + 0.05

    def end(self) -> Termination:
        """How the run will end, as things stand."""
        run = self.run
        if run.cannot_start:
            return Termination(128, self.started, 0.0, "StartError", "no such program")
        own = math.inf if run.lasts is None else self.started + run.lasts
        stopped = min(self.kill, math.inf if run.after_term is None else max(self.term, self.started) + run.after_term)
        if own <= stopped:
            return Termination(run.code, own, self.started)
        return Termination(137 if stopped == self.kill else run.code, stopped, self.started)

    def events(self) -> list[float]:
        if self.attempt < 0:
            return []
        fails = math.inf if self.run.probe_fails is None else self.started + self.run.probe_fails
        return [self.started, self.started + self.plan.startup, fails, self.end().finished_at]

    def state(self, now: float) -> ContainerState:
        policy = {"restartPolicy": "Always"} if self.plan.role is Role.SIDECAR else {}
        spec = {"name": self.plan.name, "image": "image:1", **policy, **self.plan.spec}
        if self.attempt < 0:
            return ContainerState(self.plan.name, self.plan.role, spec)
        end, seen = self.end(), now if now < self.end().finished_at else self.end().finished_at
        started = self.started if seen >= self.started and not self.run.cannot_start else None
        passed = started is not None and seen >= started + self.plan.startup
        fails = started is not None and self.run.probe_fails is not None and seen >= started + self.run.probe_fails
        return ContainerState(
            self.plan.name,
            self.plan.role,
            spec,
            Run(
                self.attempt,
                identity(self.attempt, self.plan.name),
                started,
                end if now >= end.finished_at else None,
                self.backoff,
            ),
            self.previous,
            is_startup_passed=passed,
            failed_probe=("liveness" if passed else "startup") if fails else "",
            is_replaced=self.is_replaced,
        )


class PodModel:
    """`play` it; then `launches` are the names and attempts of what was started, in order, and `pod` has the last status.

    `shown` has a line for each change: what was started or stopped, and what the status says after it.
    """

    def __init__(self, policy: str, plans: list[ContainerPlan], *, deleted_after: float | None = None, **spec: Any):
        self.pod = pod_with(policy, **spec)
        if any(plan.role is not Role.MAIN for plan in plans):
            self.pod["spec"]["initContainers"] = [{"name": plan.name} for plan in plans if plan.role is not Role.MAIN]
        self.containers = {plan.name: Container(plan) for plan in plans}
        self.now = NOW
        self.launches: list[tuple[str, int]] = []
        self.shown: list[str] = []
        self._told = ""
        self.ended_at: float | None = None
        self._deletion = math.inf if deleted_after is None else NOW + deleted_after
        self._had_turn: set[str] = set()

    def play(self, seconds: float) -> bool:
        """Let the pod run until it has ended; False if it has not after that time."""
        for _ in range(10_000):
            if self._step():
                self.ended_at = self.now
                return True
            if self.now > NOW + seconds:
                return False
        raise AssertionError("the pod does not come to rest")

    def _step(self) -> bool:
        self._delete()
        observed = tuple(container.state(self.now) for container in self.containers.values())
        states = visible_states(self.pod, observed)
        self._had_turn |= {state.name for state in states if _is_done(state)}
        ending = ending_of(self.pod, states, self.now)
        decision = decide(self.pod, states, ending, self.now)
        is_news = self._publish(states, ending)
        has_acted = self._act(decision, states, ending)
        if ending is not None and not any(state.is_alive for state in states):
            assert decision == Decision((), decision.wake_at), "what has ended needs nothing"
            return True
        if not has_acted and not is_news and states == observed:
            self._wait(decision.wake_at)
        return False

    def _delete(self) -> None:
        if self.now >= self._deletion and "deletionTimestamp" not in self.pod["metadata"]:
            grace = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
            stamp = timestamp(self._deletion + grace)
            self.pod["metadata"] |= {"deletionTimestamp": stamp, "deletionGracePeriodSeconds": grace}

    def _wait(self, wake_at: float | None) -> None:
        assert wake_at is None or wake_at > self.now, "it would look again at once, for ever"
        times = [time for container in self.containers.values() for time in container.events()]
        later = [time for time in (*times, self._deletion, *([] if wake_at is None else [wake_at])) if self.now < time < math.inf]
        self.now = min(later, default=math.inf)

    def _act(self, decision: Decision, states: tuple[ContainerState, ...], ending: Ending | None) -> bool:
        """Like the node: one launch at a time. Returns whether something was new."""
        is_new = False
        for action in decision.actions:
            container = self.containers[action.container.name]
            if isinstance(action, Launch):
                self._check_launch(action, states, ending)
                self._launch(container, action)
                return True
            self._check_stop(action, states, ending)
            is_new |= self._stop(container, action)
        return is_new

    def _launch(self, container: Container, launch: Launch) -> None:
        self.launches.append((container.plan.name, launch.attempt))
        self._tell(f"start {container.plan.name} {launch.attempt}")
        previous = container.end() if container.attempt >= 0 else None
        container.attempt, container.launched, container.backoff = launch.attempt, self.now, launch.backoff_seconds
        container.term = container.kill = container.grace_ends = math.inf
        container.is_replaced, container.previous = False, previous

    def _stop(self, container: Container, stop: Stop) -> bool:
        """Like ContainerStop without hooks: one that waits is told to stop at its turn, or when its grace is over."""
        if container.grace_ends == math.inf:
            container.is_replaced = bool(stop.container.failed_probe) and restart_policy(self.pod, stop.container) != "Never"
        container.grace_ends = min(container.grace_ends, self.now + max(stop.grace_seconds, LEAST_GRACE))
        told = container.grace_ends if stop.waits else self.now
        is_new = told < container.term
        if is_new and not stop.waits:
            self._tell(f"stop {container.plan.name} {stop.grace_seconds:g}: {stop.message}")
        container.term = min(container.term, told)
        container.kill = max(container.grace_ends, container.term + LEAST_GRACE)
        return is_new

    def _publish(self, states: tuple[ContainerState, ...], ending: Ending | None) -> bool:
        before, self.pod["status"] = self.pod["status"], pod_status(self.pod, states, ending, self.now, "127.1.2.3")
        after = self.pod["status"]
        is_over = ending is not None and not any(state.is_alive for state in states)
        assert (after["phase"] in TERMINAL) == is_over
        if before.get("phase") in TERMINAL:
            assert after["phase"] == before["phase"]
        assert PHASES.index(after["phase"]) >= PHASES.index(before.get("phase", "Pending"))
        again = pod_status(self.pod, states, ending, self.now, "127.1.2.3")  # a back-off is shown after the end
        assert pod_status({**self.pod, "status": again}, states, ending, self.now, "127.1.2.3") == again, "it comes to rest"
        counts = {shown["name"]: shown["restartCount"] for shown in _shown(before)}
        for shown in _shown(after):
            assert len(shown["state"]) == 1
            assert shown["restartCount"] >= counts.get(shown["name"], 0)
            assert not shown["ready"] or "waiting" not in shown["state"]
            assert not is_over or "running" not in shown["state"]
        is_ready = all(shown["ready"] for shown in after["containerStatuses"])
        assert not is_true(self.pod, "Ready") or (is_ready and not is_over)
        if after["phase"] == "Succeeded":
            assert all(state.ended is not None and state.ended.code == 0 for state in states if state.role is Role.MAIN)
        self._tell(summary(after))
        return bool(after != before)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self.shown.append(f"{self.now - NOW:.1f} {text}")
        if not text.startswith(("start ", "stop ")):
            self._told = text

    def _check_launch(self, launch: Launch, states: tuple[ContainerState, ...], ending: Ending | None) -> None:
        state = launch.container
        assert ending is None, "nothing is started in a pod that stops"
        assert self.containers[state.name].attempt == launch.attempt - 1
        assert state.run is None or state.run.ended is not None, "one run at a time"
        assert state.run is None or self.now >= restart_at(state)
        assert state.role is not Role.INIT or state.name not in self._had_turn, "an init container that succeeded is not repeated"
        earlier = states if state.role is Role.MAIN else states[: states.index(state)]
        missing = {other.name for other in earlier if other.role is not Role.MAIN} - self._had_turn
        assert not missing, f"{state.name} was started before {missing}"

    def _check_stop(self, stop: Stop, states: tuple[ContainerState, ...], ending: Ending | None) -> None:
        state = stop.container
        assert state.is_alive
        if ending is None:
            assert state.failed_probe
        elif state.role is Role.SIDECAR and not stop.waits:
            later = states[states.index(state) + 1 :]
            assert not any(other.is_alive for other in later if other.role is not Role.INIT), "sidecars stop last, in reverse"


def summary(status: Obj) -> str:
    """A status in a line: phase, containers, and what is not true of it."""
    told = {
        each["type"]: " ".join(each.get(key, "") for key in ("status", "reason", "message")).strip()
        for each in status["conditions"]
    }
    if told["Ready"] == told["ContainersReady"]:
        del told["Ready"]
    phase = ":".join(filter(None, (status["phase"], status.get("reason"))))
    conditions = (f"{kind} {text}" for kind, text in told.items() if text != "True")
    text = "; ".join((" ".join((phase, *map(_word, _shown(status)))), *conditions))
    for long, short in SHORT.items():
        text = text.replace(long, short)
    return text


SHORT = {
    "ContainersReady False ContainersNotReady containers with unready status: ": "unready",
    "Initialized False ContainersNotInitialized containers with incomplete status: ": "incomplete",
    "PodReadyToStartContainers False": "no sandbox",
    "Initialized True PodCompleted; ContainersReady False PodCompleted": "completed",
    "ContainersReady False PodFailed": "failed",
}


def _word(shown: Obj) -> str:
    """A container in a word: its state, `*` if it has started, `+` if it is ready, its restarts, and how it ended before."""
    ((kind, state),) = shown["state"].items()
    last = (shown["lastState"] or {}).get("terminated") or {}
    before = f"({last['exitCode']}@{last['containerID'].rpartition('/')[2]})" if last else ""
    word = "running" if kind == "running" else f"{state['reason']}{state.get('exitCode', '')}"
    restarts = f"x{shown['restartCount']}" if shown["restartCount"] else ""
    return f"{shown['name']}={word}{'*' * shown['started']}{'+' * shown['ready']}{restarts}{before}"


def _is_done(state: ContainerState) -> bool:
    """An init container that has succeeded, or a sidecar that has started."""
    if state.role is Role.INIT:
        return state.ended is not None and state.ended.code == 0
    return state.has_started


def _shown(status: Obj) -> list[Obj]:
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def main_plan(*runs: RunPlan, name: str = "m", **more: Any) -> ContainerPlan:
    return ContainerPlan(name, Role.MAIN, runs or (RunPlan(),), **more)


def init_plan(*runs: RunPlan, name: str = "i", **more: Any) -> ContainerPlan:
    return ContainerPlan(name, Role.INIT, runs or (RunPlan(),), **more)


def sidecar_plan(*runs: RunPlan, name: str = "s", **more: Any) -> ContainerPlan:
    return ContainerPlan(name, Role.SIDECAR, runs or (RunPlan(lasts=None),), **more)


def renamed(plans: list[ContainerPlan]) -> list[ContainerPlan]:
    """The same plans with names of their own."""
    return [replace(plan, name=f"{plan.name}{position}") for position, plan in enumerate(plans)]
