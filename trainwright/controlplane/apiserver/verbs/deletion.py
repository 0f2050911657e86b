"""Decides how a DELETE affects an object: removed immediately, or marked until finalizers, grace period and dependents allow it.

Pure functions; `removal` stores the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, cast

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.kinds import NAMESPACE, POD, Kind
from trainwright.api.objects import Obj, name_of, uid_of
from trainwright.api.times import parse_time, rfc3339
from trainwright.controlplane.apiserver.resources.registry import Strategy
from trainwright.controlplane.apiserver.verbs.metadata import increment_generation
from trainwright.controlplane.apiserver.wire.api_errors import conflict_error

DEFAULT_GRACE = 30
"""Default terminationGracePeriodSeconds of a pod, as in Kubernetes."""
LONGEST_GRACE = 10**9
"""Maximum grace period in seconds, about thirty years, so that date arithmetic cannot overflow."""
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
Policy = Literal["Background", "Foreground", "Orphan"]
_POLICIES = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True)
class DeleteOptions:
    """The options of a DELETE. Without a policy the default is Background, for Jobs too."""

    propagation: Policy | None = None
    grace_period_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False

    @classmethod
    def parse(cls, body: Any, query: dict[str, str], *, dry_run: bool = False) -> DeleteOptions:
        """Parse a DeleteOptions object and query parameters; the object takes precedence. Raises BadRequest, Invalid."""
        body = body or {}
        if not isinstance(body, dict) or not isinstance(body.get("preconditions") or {}, dict):
            raise BadRequest("the body of a DELETE must be a DeleteOptions object")
        named = body.get("kind") or "DeleteOptions"
        if named != "DeleteOptions":
            version = body.get("apiVersion") or ""
            scheme = 'in scheme "trainwright"'
            raise BadRequest(f'no kind "{named}" is registered for version "{version}" {scheme}')
        policy = body.get("propagationPolicy") or query.get("propagationPolicy") or None
        orphan = body.get("orphanDependents", {"true": True, "false": False}.get(query.get("orphanDependents", "")))
        if policy is not None and orphan is not None:
            message = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
            raise Invalid.of("DeleteOptions", "", [Problem("propagationPolicy", message)], "meta.k8s.io")
        if orphan is not None:
            policy = "Orphan" if orphan else "Background"
        if policy not in (None, *_POLICIES):
            message = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan", "nil"'
            problem = Problem("propagationPolicy", message, "FieldValueNotSupported")
            raise Invalid.of("DeleteOptions", "", [problem], "meta.k8s.io")
        grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
        try:
            seconds = None if grace is None else max(-1, min(int(grace), LONGEST_GRACE))
        except (TypeError, ValueError, OverflowError):
            raise BadRequest(f'strconv.ParseInt: parsing "{grace}": invalid syntax') from None
        wanted = body.get("preconditions") or {}
        dry = dry_run or body.get("dryRun") == ["All"]
        return cls(cast(Policy | None, policy), seconds, wanted.get("uid") or None, wanted.get("resourceVersion") or None, dry)


def check_preconditions(kind: Kind, obj: Obj, options: DeleteOptions) -> None:
    """Raises Conflict if the stored object does not match the preconditions."""
    name, version, wanted = name_of(obj), obj["metadata"]["resourceVersion"], options.resource_version
    if options.uid and options.uid != uid_of(obj):
        why = f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid_of(obj)}). "
        raise conflict_error(kind, name, why + "The object might have been deleted and then recreated", by_kind=True)
    if wanted and wanted != version:
        why = f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). "
        raise conflict_error(kind, name, why + "The object might have been modified", by_kind=True)


def mark_for_deletion(strategy: Strategy, obj: Obj, options: DeleteOptions, now: datetime) -> tuple[Obj, bool]:
    """A copy of the object marked for deletion, and whether it can be removed immediately."""
    metadata = dict(obj["metadata"])
    marked = {**obj, "metadata": metadata}
    finalizers = _finalizers(metadata.get("finalizers") or [], options)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    grace = _grace(strategy.kind, obj, options)
    was_marked = "deletionTimestamp" in metadata
    if not was_marked or (grace is not None and grace < metadata.get("deletionGracePeriodSeconds", 0)):
        since = now
        if was_marked:  # the grace period starts with the first request; later requests can only shorten it
            since = parse_time(metadata["deletionTimestamp"]) - timedelta(seconds=metadata.get("deletionGracePeriodSeconds", 0))
        metadata["deletionTimestamp"] = rfc3339(since + timedelta(seconds=grace or 0))
        if strategy.kind != NAMESPACE:
            metadata["deletionGracePeriodSeconds"] = grace or 0
    if not was_marked and strategy.generation:
        increment_generation(marked)
    if not was_marked and strategy.kind != POD and can_be_removed(marked):
        return obj, True  # removed immediately, without a deletion timestamp
    if strategy.kind == NAMESPACE:
        marked["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return marked, can_be_removed(marked)


def can_be_removed(obj: Obj) -> bool:
    """Whether an object being deleted can be removed: no finalizers, no grace period, no namespace contents."""
    metadata = obj["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (obj["kind"] == NAMESPACE.kind and (obj.get("spec") or {}).get("finalizers"))
    )


def _finalizers(present: list[str], options: DeleteOptions) -> list[str]:
    if options.propagation is None:
        return present
    others = [entry for entry in present if entry not in (FOREGROUND, ORPHAN)]
    return others + {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(options.propagation, [])


def _grace(kind: Kind, obj: Obj, options: DeleteOptions) -> int | None:
    """The grace period in seconds; None to keep that of an earlier DELETE."""
    if kind != POD:
        return 0  # only pods end gracefully
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0  # no process is running that could end
    if options.grace_period_seconds is not None:
        return options.grace_period_seconds if options.grace_period_seconds >= 0 else 1
    if "deletionTimestamp" in obj["metadata"]:
        return None  # a second DELETE without a period does not prolong it
    seconds = spec.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE if seconds is None else min(int(seconds), LONGEST_GRACE)
