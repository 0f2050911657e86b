"""What a user may not write although the rules of its kind allow it: rights that they do not have, and folders of this machine.

Roles and bindings would give rights away. Sources: pkg/registry/rbac (policybased storage, `ConfirmNoEscalation`) and `Covers` of
k8s.io/component-helpers, for the rules and the messages. The annotation of a claim that names a folder would lead to any file of the
operator. Templates of claims are carried out by controllers, whoever wrote them: what they may choose is what everyone may.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLAIM, CLUSTER_ROLE, JOBSET, POD, ROLE, Kind
from trainwright.api.names import HOST_FOLDER_ANNOTATION, HOST_PATH_ANNOTATION
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of
from trainwright.api.rules.problems import Lookup
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error, not_found_error
from trainwright.controlplane.apiserver.wire.requests import Requester
from trainwright.controlplane.host_paths import HostPathPolicy, HostPathRefused

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
_KINDS = {kind.kind: kind for kind in (CLAIM, JOBSET, POD)}


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


def check_host_paths(new: Obj, old: Obj | None, sender: Requester | None, policy: HostPathPolicy) -> list[str]:
    """Return warnings. Raises Forbidden if an object chooses a folder that its sender may not. What was stored is not checked."""
    if new.get("kind") not in _KINDS:
        return []
    warnings = []
    known = set(_chosen(old)) if old else set()
    if new["kind"] == CLAIM.kind:
        _keep_mark(new, old)
    for path in _chosen(new):
        if path in known:
            continue
        try:
            warnings += _check(new, path, sender, policy)
        except (HostPathRefused, OSError, ValueError) as error:
            raise _forbidden(new, str(error)) from error
    return warnings


def _check(new: Obj, path: str, sender: Requester | None, policy: HostPathPolicy) -> list[str]:
    """Return warnings. The node decides again, so that an administrator's mistake is a pod that says so."""
    chosen, is_claim = Path(path), new["kind"] == CLAIM.kind
    if is_claim and chosen == policy.own_folder(namespace_of(new), name_of(new)):
        return []
    if not chosen.is_absolute():
        raise HostPathRefused(f"must be an absolute path, got {path}")
    if is_claim and sender is not None and sender.is_administrator:
        return _home_warnings(chosen, policy)
    try:
        folder = policy.check_chosen(chosen)
    except HostPathRefused:
        if is_claim and sender is None:  # a controller of this process
            return _home_warnings(chosen, policy)
        raise
    if is_claim:
        annotations_of(new)[HOST_FOLDER_ANNOTATION] = str(folder)
    return []


def _home_warnings(chosen: Path, policy: HostPathPolicy) -> list[str]:
    try:
        policy.check_outside_own(chosen)
    except HostPathRefused as error:
        return [f"metadata.annotations[{HOST_PATH_ANNOTATION}]: {error}: pods with this claim will not start"]
    return []


def _keep_mark(new: Obj, old: Obj | None) -> None:
    """Keep the named folder of a choice for as long as the choice: nobody else sets or removes it."""
    before = annotations_of(old) if old else {}
    annotations = annotations_of(new)
    annotations.pop(HOST_FOLDER_ANNOTATION, None)
    chosen = annotations.get(HOST_PATH_ANNOTATION)
    if chosen and chosen == before.get(HOST_PATH_ANNOTATION) and HOST_FOLDER_ANNOTATION in before:
        annotations[HOST_FOLDER_ANNOTATION] = before[HOST_FOLDER_ANNOTATION]


def _chosen(obj: Obj) -> Iterator[str]:
    """Yield the folders that a claim, or the templates of claims in a pod or JobSet, choose."""
    spec = obj.get("spec") or {}
    holders = [obj] if obj["kind"] == CLAIM.kind else []
    if obj["kind"] == POD.kind:
        ephemeral = (volume.get("ephemeral") or {} for volume in spec.get("volumes") or [])
        holders = [source.get("volumeClaimTemplate") or {} for source in ephemeral]
    if obj["kind"] == JOBSET.kind:
        holders = [template for policy in spec.get("volumeClaimPolicies") or [] for template in policy.get("templates") or []]
    for holder in holders:
        if path := annotations_of(holder).get(HOST_PATH_ANNOTATION):
            yield path


def _forbidden(obj: Obj, why: str) -> Forbidden:
    return forbidden_error(_KINDS[obj["kind"]], name_of(obj), f"annotation {HOST_PATH_ANNOTATION}: {why}")
