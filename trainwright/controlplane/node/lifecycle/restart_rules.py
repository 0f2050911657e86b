"""Whether a container is started again after its end: the pod's policy, the container's own, and its rules for exit codes."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role


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


def is_finished(pod: Obj, state: ContainerState) -> bool:
    """Return whether the container has ended for good. One that was stopped to be replaced has not, whatever its exit code."""
    return state.ended is not None and not state.is_replaced and not is_restarted(pod, state, state.ended.code)


def has_failed(pod: Obj, state: ContainerState) -> bool:
    """Return whether the container has ended for good, and not well."""
    return is_finished(pod, state) and state.ended is not None and state.ended.code != 0


def _matches(rule: Obj, code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    is_listed = code in (codes.get("values") or [])
    return {"In": is_listed, "NotIn": not is_listed}.get(str(codes.get("operator")), False)
