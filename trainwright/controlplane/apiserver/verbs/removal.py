"""The delete verb, the finalize subresource of namespaces, and the pods/eviction subresource.

An eviction marks a pod as disrupted, and deletes it. There is no node or budget that could refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainwright.api import kinds
from trainwright.api.kinds import Kind
from trainwright.api.objects import is_deleting
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.verbs import metadata
from trainwright.controlplane.apiserver.verbs.deletion import (
    DeleteOptions,
    can_be_removed,
    check_preconditions,
    mark_for_deletion,
)
from trainwright.controlplane.apiserver.verbs.writer import (
    PERMANENT_NAMESPACES,
    ObjectWriter,
    Result,
    Warnings,
    deletion_status,
    unstored_result,
)
from trainwright.controlplane.apiserver.wire.api_errors import forbidden_error
from trainwright.controlplane.apiserver.wire.requests import WriteOptions

_ORPHANED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
DISRUPTION_TARGET = "DisruptionTarget"


def delete_object(
    writer: ObjectWriter, kind: Kind, namespace: str, name: str, options: DeleteOptions, empty_namespace: Callable[[str], None]
) -> Result:
    """Delete an object, or mark it until finalizers, grace period or namespace contents allow its removal.

    `empty_namespace` deletes the contents of a namespace.

    Raises Conflict for a failed precondition, Forbidden for a permanent namespace, NotFound.
    """
    strategy = strategy_of(kind)
    with writer.store.locked():
        old = writer.stored(kind, namespace, name)
        check_preconditions(kind, old.object, options)
        if kind == kinds.NAMESPACE and name in PERMANENT_NAMESPACES:
            raise forbidden_error(kind, name, "this namespace may not be deleted")
        warnings: Warnings = []
        if options.propagation is None and strategy.orphans_by_default:
            options, warnings = replace(options, propagation="Orphan"), [_ORPHANED]
        marked, over = mark_for_deletion(strategy, old.object, options, writer.clock())
        if options.dry_run:
            return unstored_result(marked) if not over or strategy.returns_deleted_object else deletion_status(kind, old.object)
        if over:
            last = writer.remove(kind, old, marked)
            return Result(last) if strategy.returns_deleted_object else deletion_status(kind, old.object)
        if marked != old.object:
            old = writer.put(kind, old, marked)
        if kind == kinds.NAMESPACE:
            empty_namespace(name)
        return Result(old, warnings)


def finalize_namespace(writer: ObjectWriter, name: str, namespace: Any, options: WriteOptions) -> Result:
    """Replace the finalizers of a namespace; removing the last one removes a terminating namespace. Raises NotFound, Conflict."""
    kind = kinds.NAMESPACE
    new = metadata.decode_object(kind, namespace, custom=False)
    with writer.store.locked():
        old = writer.stored(kind, "", name)
        metadata.check_version(kind, new, old.object, required=False)
        changed = {**old.object, "spec": new.get("spec") or {}}
        if options.dry_run or changed == old.object:
            return unstored_result(changed)
        if can_be_removed(changed):
            writer.remove(kind, old, changed)
            return unstored_result(changed)
        return Result(writer.put(kind, old, changed))


def mark_evicted(writer: ObjectWriter, namespace: str, name: str) -> None:
    """Set the condition DisruptionTarget of a pod that is neither finished nor being deleted. Raises NotFound.

    Policies for failed pods look at it: an eviction is nothing that the pod's program has done.
    """
    kind = kinds.POD
    with writer.store.locked():
        old = writer.stored(kind, namespace, name)
        status = old.object.get("status") or {}
        if is_deleting(old.object) or status.get("phase") in ("Succeeded", "Failed"):
            return
        others = [entry for entry in status.get("conditions") or [] if entry.get("type") != DISRUPTION_TARGET]
        marked = {
            "type": DISRUPTION_TARGET,
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": writer.now(),
        }
        writer.put(kind, old, {**old.object, "status": {**status, "conditions": [*others, marked]}})
