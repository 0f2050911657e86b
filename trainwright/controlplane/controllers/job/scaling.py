"""Decides which pods of a Job to delete, and for which indexes to create pods."""

from __future__ import annotations

from collections import defaultdict

from trainwright.api.objects import Obj
from trainwright.controlplane.controllers.job.backoff import BackoffRecord, index_seconds_left
from trainwright.controlplane.controllers.job.pods import index_of, is_terminating, removal_order
from trainwright.controlplane.controllers.job.reconcile_state import ReconcileState

MAX_PODS_PER_PASS = 500


def pods_to_delete(state: ReconcileState) -> list[Obj]:
    """Return active pods to delete: duplicates of an index, indexes beyond the completions, then by `removal_order`."""
    excess = max(len(state.active) - _desired_active(state), 0)
    extra, rest = _split_by_index(state) if state.is_indexed else ([], state.active)
    more = sorted(rest, key=removal_order)[: max(excess - len(extra), 0)]
    return [*extra, *more][:MAX_PODS_PER_PASS]


def indexes_to_create(state: ReconcileState, record: BackoffRecord) -> tuple[list[int | None], float | None]:
    """Return indexes to create pods for (None for each pod of a NonIndexed Job), or the seconds until the next attempt."""
    count = _desired_active(state) - len(state.active)
    if state.replaces_only_failed:
        count -= sum(is_terminating(pod) for pod in state.pods)
    if count <= 0:
        return [], None  # enough, or too many, which `pods_to_delete` returns
    if not state.has_limit_per_index and (left := record.seconds_left(state.now)) > 0:
        return [], left  # backing off after a failure
    count = min(count, MAX_PODS_PER_PASS)
    if not state.is_indexed:
        return [None] * count, None  # pods without an index are interchangeable
    pending = _pending(state, count)
    if not state.has_limit_per_index:
        return list(pending), None  # the one back-off of the Job is over
    waits = {index: index_seconds_left(state.awaiting_replacement.get(index), state.now) for index in pending}
    due: list[int | None] = [index for index in pending if waits[index] <= 0]
    return due, None if due else min(waits.values(), default=None)


def _desired_active(state: ReconcileState) -> int:
    completions, parallelism = state.spec.get("completions"), int(state.spec.get("parallelism", 1))
    if state.is_suspended:
        return 0
    if completions is None:  # a work queue: no new pods after the first success
        return len(state.active) if state.succeeded else parallelism
    return max(min(parallelism, int(completions) - state.succeeded), 0)


def _pending(state: ReconcileState, count: int) -> list[int]:
    """Return the lowest indexes that have no pod and have neither completed nor failed."""
    holders = [*state.active]
    if state.replaces_only_failed:
        holders += [pod for pod in state.pods if is_terminating(pod)]
    taken = state.completed | (state.failed_indexes or set()) | {index for pod in holders if (index := index_of(pod)) is not None}
    pending: list[int] = []
    for index in range(int(state.spec["completions"])):
        if len(pending) == count:
            break
        if index not in taken:
            pending.append(index)
    return pending


def _split_by_index(state: ReconcileState) -> tuple[list[Obj], list[Obj]]:
    """Split active pods into surplus ones and others. Of each needed index the pod last in `removal_order` is kept."""
    by_index: dict[int | None, list[Obj]] = defaultdict(list)
    for pod in state.active:
        by_index[index_of(pod)].append(pod)
    extra: list[Obj] = []
    rest: list[Obj] = []
    for pods in by_index.values():
        ordered = sorted(pods, key=removal_order)
        keep = 1 if state.is_needed(pods[0]) else 0
        extra += ordered[: len(ordered) - keep]
        rest += ordered[len(ordered) - keep :]
    return extra, rest
