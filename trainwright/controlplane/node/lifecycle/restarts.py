"""Whether a container is started again after its end, and after how long.

The pod's policy, the container's own, and its rules for exit codes decide whether. The pause is nothing at first, then 10 s, doubled
each time up to 5 minutes. Source: `doBackOff` of the kubelet, whose back-off is forgotten 10 minutes after the last start.
"""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role, Run

INITIAL_SECONDS = 10.0
MAXIMUM_SECONDS = 300.0
FORGET_SECONDS = 2 * MAXIMUM_SECONDS


def restart_policy(pod: Obj, state: ContainerState) -> str:
    """Return the policy of a container, or that of its pod: Always, OnFailure or Never."""
    return str(state.spec.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always")


def is_restarted(pod: Obj, state: ContainerState, code: int) -> bool:
    """Return whether the container is started again after this exit code.

    The first rule that matches decides, then the container's own policy, then the pod's. Rules count only beside a policy of the
    container's own. An init container that has succeeded is not repeated; a sidecar is always restarted.
    Source: `ContainerShouldRestart` of Kubernetes 1.36, and the kubelet's computeInitContainerActions.
    """
    if code == 0 and state.role is Role.INIT:
        return False
    rules = state.spec.get("restartPolicyRules") or [] if state.spec.get("restartPolicy") else []
    decisive = next((rule for rule in rules if _matches(rule, code)), None)
    if decisive is not None and decisive.get("action") == "Restart":
        return True
    policy = restart_policy(pod, state)
    return policy == "Always" or (policy != "Never" and code != 0)


def _matches(rule: Obj, code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    is_listed = code in (codes.get("values") or [])
    return {"In": is_listed, "NotIn": not is_listed}.get(str(codes.get("operator")), False)


def is_finished(pod: Obj, state: ContainerState) -> bool:
    """Return whether the container has ended for good. One that was stopped to be replaced has not, whatever its exit code."""
    return state.ended is not None and not state.is_replaced and not is_restarted(pod, state, state.ended.code)


def has_failed(pod: Obj, state: ContainerState) -> bool:
    """Return whether the container has ended for good, and not well."""
    return is_finished(pod, state) and state.ended is not None and state.ended.code != 0


def restart_at(state: ContainerState) -> float:
    """Return when a container whose run has ended is started again, in seconds since the epoch. Raises ValueError if it has not.

    One that was stopped for its probe is replaced at once if it has run for longer than its back-off: the kubelet counts from the
    end before then.
    """
    run = state.run
    if run is None or run.ended is None:
        raise ValueError(f"container {state.name!r} has not ended")
    ended = run.ended.finished_at
    has_waited = state.is_replaced and (state.previous is None or ended >= state.previous.finished_at + run.backoff_seconds)
    return ended if has_waited or _is_forgotten(run) else ended + run.backoff_seconds


def _is_forgotten(run: Run) -> bool:
    ended = run.ended
    return ended is not None and ended.started_at > 0 and ended.finished_at - ended.started_at > FORGET_SECONDS


def next_backoff(state: ContainerState) -> float:
    """Return the back-off of the run that follows the container's run, in seconds: what a start after that one's end has to wait.

    The replacement of the first run, which was stopped for its probe, is no restart for the kubelet's back-off.
    """
    run = state.run
    if run is None or (state.is_replaced and state.previous is None):
        return 0.0  # the first start, or one that the kubelet does not count
    if run.backoff_seconds == 0 or _is_forgotten(run):
        return INITIAL_SECONDS
    return min(run.backoff_seconds * 2, MAXIMUM_SECONDS)


def is_backing_off(state: ContainerState, now: float) -> bool:
    """Whether the container has ended and waits. A clock that jumped back does not make it wait longer than its back-off."""
    run = state.run
    if run is None or run.ended is None:
        return False  # it has not ended
    return run.ended.finished_at - run.backoff_seconds <= now < restart_at(state)


def go_duration(seconds: float) -> str:
    """Format whole seconds like Go: `10s`, `1m20s`, `5m0s`, `1h0m0s`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
