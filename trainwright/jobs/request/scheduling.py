"""Checks the scheduling settings of a job: its queue, and tolerations, affinity and topology of its pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainwright.api.schema.published import struct_named
from trainwright.jobs.request.field_schemas import schema_problems
from trainwright.jobs.request.setting_values import Topology

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def scheduling_problems(
    *, queue: str, priority_class: str, topology: Topology | None, tolerations: list[dict[str, Any]], affinity: dict[str, Any]
) -> Iterator[str]:
    """Yield problems of the scheduling settings, each starting with the field."""
    if queue and not _NAME.fullmatch(queue):
        yield f"queue_name: {queue!r} is not the name of a queue"
    if priority_class and not _NAME.fullmatch(priority_class):
        yield f"priority_class: {priority_class!r} is not the name of a priority class"
    if priority_class and not queue:
        yield "priority_class: requires a queue, but queue_name is empty; the runtime sets a pod's priorityClassName"
    if topology is not None and not queue and topology.is_kueue_mode:
        yield f"topology: {str(topology)!r} requires a queue, but queue_name is empty; exclusive:KEY does not"
    for index, toleration in enumerate(tolerations):
        yield from schema_problems(struct_named("Toleration"), toleration, f"tolerations[{index}]")
    yield from schema_problems(struct_named("Affinity"), affinity, "affinity")
