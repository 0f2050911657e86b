"""Messages for unschedulable pods: those of kube-scheduler, with what its other plugins add, for one node."""

from __future__ import annotations

SOURCE = "default-scheduler"
"""The component that events of scheduling come from."""
_AVAILABLE = "0/1 nodes are available: {}."
_HELPLESS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
_NO_VICTIMS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
_NEVER = "no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never."
NO_NODES = "no nodes available to schedule pods"


def wrong_node(why: str, pod_spec: dict[str, object]) -> str:
    """The pod cannot run on the node, regardless of resources."""
    return f"{_AVAILABLE.format('1 ' + why)} {_second(pod_spec, _HELPLESS)}"


def unbound(why: str) -> str:
    """An object that the pod refers to does not exist, so that no node is suitable."""
    return f"{_AVAILABLE.format(why)} {_HELPLESS}"


def insufficient(insufficient: list[str], *, is_permanent: bool, pod_spec: dict[str, object]) -> str:
    """The node has too few free resources, or (`is_permanent`) too few allocatable ones."""
    return f"{_AVAILABLE.format(_lacking(insufficient))} {_second(pod_spec, _HELPLESS if is_permanent else _NO_VICTIMS)}"


def together(message: str, gang: str) -> str:
    """The message for a pod that would fit without its gang."""
    return f"{message} The pods of {gang} are placed together or not at all."


def _lacking(insufficient: list[str]) -> str:
    return ", ".join(sorted("1 Too many pods" if name == "pods" else f"1 Insufficient {name}" for name in insufficient))


def _second(pod_spec: dict[str, object], sentence: str) -> str:
    return _NEVER if pod_spec.get("preemptionPolicy") == "Never" else sentence
