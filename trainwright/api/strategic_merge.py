"""Strategic merge patch for Pods, Jobs and JobSets: lists of named things merge by their key, other lists are replaced.

The table of merge keys is the whole difference from a JSON merge patch; the order of a merged list follows kubectl.
"""

from __future__ import annotations

from typing import Any

# Merge key of a list, by the list's field name and the field that holds it (`*` is any).
MERGE_KEYS: dict[str, str] = {
    "replicatedJobs": "name",
    "dependsOn": "name",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "conditions": "type",
    "ownerReferences": "uid",
}
_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"


def strategic_merge(original: Any, patch: Any) -> Any:
    """`original` changed by `patch`, as a new value.

    Honours null (delete) and the directives `$patch: replace | delete` and `$retainKeys`.
    Raises ValueError for an unknown directive, or an element of a keyed list without its key.
    """
    if not isinstance(patch, dict):
        return patch
    return _merge_maps(original if isinstance(original, dict) else {}, patch)


def _merge_maps(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise ValueError(f"unknown directive $patch: {directive!r}; expected merge, replace or delete")
    retained = patch.get(_RETAIN)
    merged = {k: v for k, v in original.items() if retained is None or k in retained}
    for key, value in patch.items():
        if key in (_DIRECTIVE, _RETAIN):
            continue
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            current = merged.get(key)
            merged[key] = _merge_maps(current if isinstance(current, dict) else {}, value)
        elif isinstance(value, list) and key in MERGE_KEYS and _is_keyed(value):
            merged[key] = _merge_lists(merged.get(key) or [], value, MERGE_KEYS[key], key)
        else:
            merged[key] = value
    return merged


def _is_keyed(items: list[Any]) -> bool:
    return all(isinstance(item, dict) for item in items)


def _merge_lists(original: list[Any], patch: list[Any], key: str, field: str) -> list[Any]:
    items, deleted, replace = [], set(), False
    for item in patch:
        directive = item.get(_DIRECTIVE)
        if directive == "replace" and key not in item:
            replace = True
        elif key not in item:
            raise ValueError(f"{field}: an element has no {key!r}, by which the list is merged")
        elif directive == "delete":
            deleted.add(item[key])
        else:
            items.append(item)
    if replace:
        return items
    kept = {item.get(key): item for item in original if item.get(key) not in deleted}
    merged = {item[key]: _merge_maps(kept.get(item[key], {}), item) for item in items}
    server_only = [value for value in kept if value not in merged]
    order = {item.get(key): position for position, item in enumerate(original)}
    return [merged[value] if value in merged else kept[value] for value in _interleave(list(merged), server_only, order)]


def _interleave(patched: list[Any], server_only: list[Any], order: dict[Any, int]) -> list[Any]:
    """The order of a merged list: patch order, with the untouched elements kept before those that followed them.

    An untouched element goes first only when both heads were there before and it came earlier; so new elements
    go before the remaining untouched ones, as kubectl has it.
    """
    result: list[Any] = []
    while patched and server_only:
        first = server_only[0] if patched[0] in order and order[server_only[0]] < order[patched[0]] else patched[0]
        result.append(first)
        (server_only if first == server_only[0] else patched).pop(0)
    return result + patched + server_only
