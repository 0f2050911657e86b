"""The rules of CustomResourceDefinitions in Python: CEL is published, and each rule has a function here with its meaning.

An evaluator of CEL in place of these ten functions would take 30 to 340 microseconds a rule, and 50 MB on disk (`cel-expr-python`), or
30 MB of memory and 0.2 s at the start (`common-expression-language`). `tests/api/test_rule_functions.py` compares them with one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trainwright.api import names
from trainwright.api.schema.types import Rule

UNCHANGED = "self == oldSelf"
"""The rule of a value that is immutable once set; adding or removing it is allowed."""
_URI = re.compile("^[A-Za-z][A-Za-z0-9+.-]*://.+$")
_LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")


def _one_order(spec: Any) -> bool:
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    return not (in_order and any("dependsOn" in job for job in spec.get("replicatedJobs") or []))


def _no_namespace(policy: Any) -> bool:
    return not any((template.get("metadata") or {}).get("namespace") for template in policy.get("templates") or [])


HOLDS: dict[str, Callable[[Any], bool]] = {
    "self >= 1": lambda number: bool(number >= 1),
    "has(self.lastUpdatedTime)": lambda status: "lastUpdatedTime" in status,
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')": lambda uri: not uri or _URI.search(uri) is not None,
    f"self in ['{names.TRAINJOB_CONTROLLER}', '{names.MULTIKUEUE_CONTROLLER}']": (
        lambda manager: manager in (names.TRAINJOB_CONTROLLER, names.MULTIKUEUE_CONTROLLER)
    ),
    f"!self.exists(c, c == '{names.NODE}')": lambda containers: names.NODE not in containers,
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1": (
        lambda policy: sum(name in policy for name in _POLICIES) <= 1
    ),
    "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder'"
    " && self.replicatedJobs.exists(x, has(x.dependsOn)))": _one_order,
    "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)": _no_namespace,
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": (
        lambda job: _LABEL.match(job["metadata"].get("name") or "") is not None
    ),
    "size(self.metadata.name) <= 63": lambda job: len(job["metadata"].get("name") or "") <= 63,
}


def published_rule(published: Mapping[str, str]) -> Rule:
    """Return the rule with a published CEL text. Raises LookupError for a text without a function here."""
    cel, message = published["rule"], published["message"]
    if cel == UNCHANGED:
        return Rule(cel, message, keeps=lambda old, new: bool(old == new))
    if cel not in HOLDS:
        raise LookupError(f"the rule {cel!r} ({message}) has no function in trainwright/api/schema/rules.py")
    return Rule(cel, message, holds=HOLDS[cel], about="metadata.name" if "self.metadata.name" in cel else "")
