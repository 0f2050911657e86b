"""Deleting: an object, a collection, a namespace with everything in it, and the end of a namespace that is finalized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainwright.api import kinds
from trainwright.api.kinds import Kind
from trainwright.controlplane.apiserver.resources.registry import strategy_of
from trainwright.controlplane.apiserver.verbs import metadata, namespaces
from trainwright.controlplane.apiserver.verbs.answers import Answer, Warnings, answer_with, deleted
from trainwright.controlplane.apiserver.verbs.deletion import DeleteOptions, check_preconditions, is_over, marked
from trainwright.controlplane.apiserver.verbs.writer import ObjectWriter
from trainwright.controlplane.apiserver.wire.api_errors import forbidden
from trainwright.controlplane.apiserver.wire.write_options import WriteOptions

_ORPHANED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def delete_object(
    writer: ObjectWriter, kind: Kind, namespace: str, name: str, options: DeleteOptions, empty_namespace: Callable[[str], None]
) -> Answer:
    """Delete an object, or mark it until its finalizers, its grace or its contents allow it.

    `empty_namespace` deletes what a namespace holds.

    Raises Conflict for a precondition, Forbidden for a namespace that has to be, NotFound.
    """
    strategy = strategy_of(kind)
    with writer.store.locked():
        old = writer.stored(kind, namespace, name)
        check_preconditions(kind, old.object, options)
        if kind == kinds.NAMESPACE and name in namespaces.PERMANENT:
            raise forbidden(kind, name, "this namespace may not be deleted")
        warnings: Warnings = []
        if options.propagation is None and strategy.orphans_by_default:
            options, warnings = replace(options, propagation="Orphan"), [_ORPHANED]
        doomed, over = marked(strategy, old.object, options, writer.clock())
        if options.dry_run:
            return answer_with(doomed) if not over or strategy.answers_deleted_object else deleted(kind, old.object)
        if over:
            last = writer.remove(kind, old, doomed)
            return Answer(last) if strategy.answers_deleted_object else deleted(kind, old.object)
        if doomed != old.object:
            old = writer.put(kind, old, doomed)
        if kind == kinds.NAMESPACE:
            empty_namespace(name)
        return Answer(old, warnings)


def finalize_namespace(writer: ObjectWriter, name: str, namespace: Any, options: WriteOptions) -> Answer:
    """Replace what holds a namespace; one that is being deleted goes with the last of it. Raises NotFound, Conflict."""
    kind = kinds.NAMESPACE
    new = metadata.decoded(kind, namespace, custom=False)
    with writer.store.locked():
        old = writer.stored(kind, "", name)
        metadata.check_version(kind, new, old.object, required=False)
        changed = {**old.object, "spec": new.get("spec") or {}}
        if options.dry_run or changed == old.object:
            return answer_with(changed)
        if is_over(changed):
            writer.remove(kind, old, changed)
            return answer_with(changed)
        return Answer(writer.put(kind, old, changed))
