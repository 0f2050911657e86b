"""Decides who may say which folder of this machine a claim is: the annotation would otherwise lead to any file of the operator.

Templates of claims are carried out by controllers, whoever wrote them: what they may choose is what everyone may.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLAIM, JOBSET, POD
from trainwright.api.names import HOST_FOLDER_ANNOTATION, HOST_PATH_ANNOTATION
from trainwright.api.objects import Obj, annotations_of, name_of, namespace_of
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error
from trainwright.controlplane.apiserver.wire.write_options import Requester
from trainwright.controlplane.host_paths import HostPathPolicy, HostPathRefused

_KINDS = {kind.kind: kind for kind in (CLAIM, JOBSET, POD)}


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
