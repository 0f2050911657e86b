"""Whether a container is started again after its end: the pod's policy, the container's own, and its rules for exit codes."""

from __future__ import annotations

from trainwright.api.objects import Obj
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role


def is_restarted(pod: Obj, state: ContainerState, code: int) -> bool:
    """Return whether the container is started again after this exit code.

    The first rule that matches decides, then the container's own policy, then the pod's. A finished init container is not
    repeated; a sidecar is always restarted.
    Source: `restartPolicy` and `restartPolicyRules` of Container in Kubernetes 1.36.
    """
    for rule in state.spec.get("restartPolicyRules") or []:
        if _matches(rule, code):
            return True
    policy = state.spec.get("restartPolicy") or pod["spec"].get("restartPolicy") or "Always"
    if policy == "Never":
        return False
    if code == 0:
        return policy == "Always" and state.role is not Role.INIT
    return True


def is_finished(pod: Obj, state: ContainerState) -> bool:
    """Return whether the container has ended for good."""
    return state.ended is not None and not is_restarted(pod, state, state.ended.code)


def has_failed(pod: Obj, state: ContainerState) -> bool:
    """Return whether the container has ended for good, and not well."""
    return is_finished(pod, state) and state.ended is not None and state.ended.code != 0


def _matches(rule: Obj, code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    is_listed = code in (codes.get("values") or [])
    return rule.get("action") == "Restart" and is_listed == (codes.get("operator") == "In")
