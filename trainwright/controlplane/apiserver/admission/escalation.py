"""Keeps users from giving away rights that they do not have, by roles and bindings that they may write.

Sources: pkg/registry/rbac (policybased storage, `ConfirmNoEscalation`) and `Covers` of k8s.io/component-helpers, for the rules and
the messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product

from trainwright.api.kinds import CLUSTER_ROLE, ROLE, Kind
from trainwright.api.objects import Obj, name_of, namespace_of
from trainwright.api.rules.problems import Lookup
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error, not_found_error
from trainwright.controlplane.apiserver.wire.write_options import Requester

_ANY = "*"
_EVERYTHING: tuple[Obj, ...] = (
    {"apiGroups": [_ANY], "resources": [_ANY], "verbs": [_ANY]},
    {"nonResourceURLs": [_ANY], "verbs": [_ANY]},
)
_FIELDS = ("apiGroups", "resources", "nonResourceURLs", "resourceNames", "verbs")
_SAID = {
    "apiGroups": "APIGroups",
    "resources": "Resources",
    "nonResourceURLs": "NonResourceURLs",
    "resourceNames": "ResourceNames",
}


def check_role(kind: Kind, new: Obj, old: Obj | None, sender: Requester) -> None:
    """Raises Forbidden if a role, or a change of it, gives rights that the sender lacks, unless it has the verb `escalate`."""
    namespace, name = namespace_of(new), name_of(new)
    if sender.is_administrator or _is_same(new, old, ("rules", "aggregationRule")):
        return
    if sender.may("escalate", kind, namespace, name if old else ""):
        return
    if new.get("aggregationRule") and any(_missing(sender, "", _EVERYTHING)):
        raise forbidden_error(kind, name, "must have cluster-admin privileges to use an aggregationRule")
    _confirm(kind, name, namespace, new.get("rules") or [], sender)


def check_binding(kind: Kind, new: Obj, old: Obj | None, sender: Requester, lookup: Lookup) -> None:
    """Raises Forbidden if a binding gives rights that the sender lacks, unless it has the verb `bind` on the role; NotFound."""
    namespace, name, reference = namespace_of(new), name_of(new), new["roleRef"]
    if sender.is_administrator or _is_same(new, old, ("subjects", "roleRef")):
        return
    of_kind = ROLE if reference["kind"] == ROLE.kind else CLUSTER_ROLE
    if sender.may("bind", of_kind, namespace, reference["name"]):
        return
    role = lookup(of_kind.kind, namespace if of_kind == ROLE else "", reference["name"])
    if role is None:
        raise not_found_error(of_kind, reference["name"])
    _confirm(kind, name, namespace, role.get("rules") or [], sender)


def _is_same(new: Obj, old: Obj | None, fields: tuple[str, ...]) -> bool:
    return old is not None and all(new.get(field) == old.get(field) for field in fields)


def _confirm(kind: Kind, name: str, namespace: str, rules: Iterable[Obj], sender: Requester) -> None:
    missing = list(_missing(sender, namespace, rules))
    if missing:
        who = f"user {_quoted(sender.name)} (groups=[{' '.join(map(_quoted, sender.groups))}])"
        lines = "\n".join(sorted({_described(rule) for rule in _compact(missing)}))
        raise forbidden_error(kind, name, f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}")


def _missing(sender: Requester, namespace: str, rules: Iterable[Obj]) -> Iterator[Obj]:
    """Yield the parts of the rules that no rule of the sender covers."""
    held = list(sender.rules(namespace))
    for rule in rules:
        for part in _parts(rule):
            if not any(_covers(own, part) for own in held):
                yield part


def _parts(rule: Obj) -> Iterator[Obj]:
    """Yield rules of one verb on one resource, object or URL each."""
    for group, resource, verb in product(*(rule.get(field) or [] for field in ("apiGroups", "resources", "verbs"))):
        part = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        yield from ({**part, "resourceNames": [name]} for name in rule["resourceNames"]) if rule.get("resourceNames") else [part]
    for url, verb in product(rule.get("nonResourceURLs") or [], rule.get("verbs") or []):
        yield {"nonResourceURLs": [url], "verbs": [verb]}


def _covers(own: Obj, part: Obj) -> bool:
    """Whether a rule covers one of a single verb on a single resource, object or URL."""
    held = {field: own.get(field) or [] for field in _FIELDS}
    if not _has(held["verbs"], part["verbs"][0]):
        return False
    if "nonResourceURLs" in part:
        return any(_is_url(part["nonResourceURLs"][0], pattern) for pattern in held["nonResourceURLs"])
    resource = part["resources"][0]
    _, slash, subresource = resource.partition("/")
    if not _has(held["apiGroups"], part["apiGroups"][0]):
        return False
    if not _has(held["resources"], resource) and not (slash and f"{_ANY}/{subresource}" in held["resources"]):
        return False
    names = held["resourceNames"]
    return not names or (bool(part.get("resourceNames")) and part["resourceNames"][0] in names)


def _has(values: list[str], wanted: str) -> bool:
    return _ANY in values or wanted in values


def _is_url(url: str, pattern: str) -> bool:
    return url == pattern or (pattern.endswith(_ANY) and url.rstrip(_ANY).startswith(pattern[:-1]))


def _compact(parts: list[Obj]) -> Iterator[Obj]:
    """Yield the rules with the verbs of the same resource, object or URL together."""
    found: dict[str, Obj] = {}
    for part in parts:
        key = json.dumps({**part, "verbs": []}, sort_keys=True)
        known = found.setdefault(key, {**part, "verbs": []})
        if part["verbs"][0] not in known["verbs"]:
            known["verbs"].append(part["verbs"][0])
    yield from found.values()


def _described(rule: Obj) -> str:
    texts = (f"{_SAID.get(field, 'Verbs')}:[{' '.join(map(_quoted, rule[field]))}]" for field in _FIELDS if rule.get(field))
    return f"{{{', '.join(texts)}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
