"""How many pods should a Job have, which are too many, and for which indexes are some missing?"""

from __future__ import annotations

from collections import defaultdict

from trainwright.api.objects import Obj
from trainwright.controlplane.controllers.job.backoff import BackoffRecord, index_seconds_left
from trainwright.controlplane.controllers.job.look import Look
from trainwright.controlplane.controllers.job.pods import index_of, is_terminating, removal_order

MOST_PODS_A_PASS = 500


def surplus(look: Look) -> list[Obj]:
    """The active pods to remove: duplicates of an index, indexes beyond the completions, then the cheapest to lose."""
    excess = max(len(look.active) - _wanted(look), 0)
    extra, rest = _misplaced(look) if look.indexed else ([], look.active)
    more = sorted(rest, key=removal_order)[: max(excess - len(extra), 0)]
    return [*extra, *more][:MOST_PODS_A_PASS]


def missing(look: Look, record: BackoffRecord) -> tuple[list[int | None], float | None]:
    """The indexes to create pods for (None for each pod of a NonIndexed Job), or after how many seconds to look again."""
    count = _wanted(look) - len(look.active)
    if look.replaces_only_failed:
        count -= sum(is_terminating(pod) for pod in look.pods)
    if count <= 0:
        return [], None
    if not look.per_index and (left := record.seconds_left(look.now)) > 0:
        return [], left
    count = min(count, MOST_PODS_A_PASS)
    if not look.indexed:
        return [None] * count, None
    pending = _pending(look, count)
    if not look.per_index:
        return list(pending), None
    waits = {index: index_seconds_left(look.awaiting_replacement.get(index), look.now) for index in pending}
    due: list[int | None] = [index for index in pending if waits[index] <= 0]
    return due, None if due else min(waits.values(), default=None)


def _wanted(look: Look) -> int:
    completions, parallelism = look.spec.get("completions"), int(look.spec.get("parallelism", 1))
    if look.suspended:
        return 0
    if completions is None:  # a work queue: no new pods after the first success
        return len(look.active) if look.succeeded else parallelism
    return max(min(parallelism, int(completions) - look.succeeded), 0)


def _pending(look: Look, count: int) -> list[int]:
    """The lowest indexes that nobody works on and that are not decided."""
    holders = [*look.active]
    if look.replaces_only_failed:
        holders += [pod for pod in look.pods if is_terminating(pod)]
    taken = look.completed | (look.failed_indexes or set()) | {index for pod in holders if (index := index_of(pod)) is not None}
    pending: list[int] = []
    for index in range(int(look.spec["completions"])):
        if len(pending) == count:
            break
        if index not in taken:
            pending.append(index)
    return pending


def _misplaced(look: Look) -> tuple[list[Obj], list[Obj]]:
    """Active pods that nobody wants, and the others: of each wanted index one pod stays, the one most worth keeping."""
    by_index: dict[int | None, list[Obj]] = defaultdict(list)
    for pod in look.active:
        by_index[index_of(pod)].append(pod)
    extra: list[Obj] = []
    rest: list[Obj] = []
    for pods in by_index.values():
        ordered = sorted(pods, key=removal_order)
        keep = 1 if look.belongs(pods[0]) else 0
        extra += ordered[: len(ordered) - keep]
        rest += ordered[len(ordered) - keep :]
    return extra, rest
