"""Node filters: cordon, taints, selector, required affinity, with kube-scheduler's order and messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainwright.api.integers import parse_int64
from trainwright.api.objects import Obj, labels_of, name_of

_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NO_MATCH = "node(s) didn't match Pod's node affinity/selector"


def obstacle(pod_spec: Obj, node: Obj) -> str:
    """Return why the pod cannot run on this node, or an empty string."""
    spec, tolerations = node.get("spec") or {}, pod_spec.get("tolerations") or []
    if spec.get("unschedulable") and not _tolerated(_UNSCHEDULABLE, tolerations):
        return "node(s) were unschedulable"
    for taint in spec.get("taints") or []:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return "" if _selected(pod_spec, node) else _NO_MATCH


def _tolerated(taint: Obj, tolerations: Iterable[Obj]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Obj, taint: Obj) -> bool:
    """Whether a toleration matches a taint. An empty key with Exists matches all taints, an empty effect all effects."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def _selected(pod_spec: Obj, node: Obj) -> bool:
    labels = labels_of(node)
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term_holds(term, node) for term in required.get("nodeSelectorTerms") or [])


def _term_holds(term: Obj, node: Obj) -> bool:
    """Whether a term matches the node. A term without requirements matches nothing."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    found = [_holds(entry, labels_of(node)) for entry in expressions]
    return all(found) and all(_holds(entry, {"metadata.name": name_of(node)}) for entry in fields)


def _holds(requirement: Obj, values: dict[str, str]) -> bool:
    value, expected = values.get(requirement["key"]), requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value is not None and value in expected
        case "NotIn":
            return value not in expected
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            numbers = list(_numbers([value, *expected]))
            if len(numbers) != 2:  # not numbers: no match, like in kube-scheduler
                return False
            return numbers[0] > numbers[1] if operator == "Gt" else numbers[0] < numbers[1]
    return False


def _numbers(texts: Iterable[str | None]) -> Iterator[int]:
    for text in texts:
        if text is not None and (number := parse_int64(text)) is not None:
            yield number
