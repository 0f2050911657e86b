"""What a pod that does not fit is told: kube-scheduler's sentences, with its second one about preemption, for one node."""

from __future__ import annotations

_AVAILABLE = "0/1 nodes are available: {}."
_HELPLESS = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
_NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
_NEVER = "preemption: not eligible due to preemptionPolicy=Never."
NO_NODES = "no nodes available to schedule pods"


def wrong_node(why: str, pod_spec: dict[str, object]) -> str:
    """The node is none for this pod, whatever runs there."""
    return f"{_AVAILABLE.format('1 ' + why)} {_second(pod_spec, _HELPLESS)}"


def unbound(why: str) -> str:
    """Something that the pod names is not there: no node would do."""
    return f"{_AVAILABLE.format(why)} {_HELPLESS}"


def insufficient(lacking: list[str], *, for_ever: bool, pod_spec: dict[str, object]) -> str:
    """The node has too little left, or (`for_ever`) too little at all."""
    parts = sorted("1 Too many pods" if name == "pods" else f"1 Insufficient {name}" for name in lacking)
    return f"{_AVAILABLE.format(', '.join(parts))} {_second(pod_spec, _HELPLESS if for_ever else _NO_VICTIMS)}"


def together(message: str, gang: str) -> str:
    """Why a pod waits that would fit alone."""
    return f"{message} The pods of {gang} are placed together or not at all."


def _second(pod_spec: dict[str, object], sentence: str) -> str:
    return _NEVER if pod_spec.get("preemptionPolicy") == "Never" else sentence
