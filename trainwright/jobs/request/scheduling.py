"""Checks the scheduling settings of a job: its queue, and tolerations, affinity and topology of its pods. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainwright.api.schema.pod import AFFINITY, TOLERATION
from trainwright.jobs.request.field_schemas import schema_problems

EXCLUSIVE_ANNOTATION = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_KUEUE_TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
_LABEL_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_TOPOLOGY = re.compile(rf"(required|preferred|exclusive):({_LABEL_KEY})|unconstrained")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Topology:
    """`required`, `preferred` and `unconstrained` are modes of Kueue, `exclusive` of JobSet; `key` is a node label."""

    mode: str
    key: str = ""

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Parse `required:KEY`, `preferred:KEY`, `exclusive:KEY` or `unconstrained`. Raises ValueError."""
        match = _TOPOLOGY.fullmatch(text)
        if match is None:
            raise ValueError(
                f"topology: {text!r} is not one of required:KEY, preferred:KEY, unconstrained and exclusive:KEY, "
                "where KEY is a node label such as topology.kubernetes.io/zone"
            )
        return cls(match[1] or "unconstrained", match[2] or "")

    def __str__(self) -> str:
        return f"{self.mode}:{self.key}" if self.key else self.mode

    @property
    def is_kueue_mode(self) -> bool:
        return self.mode != "exclusive"

    def pod_annotations(self) -> dict[str, str]:
        return {_KUEUE_TOPOLOGY.format(self.mode): self.key or "true"} if self.is_kueue_mode else {}

    def jobset_annotations(self) -> dict[str, str]:
        return {} if self.is_kueue_mode else {EXCLUSIVE_ANNOTATION: self.key}


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
        yield from schema_problems(TOLERATION, toleration, f"tolerations[{index}]")
    yield from schema_problems(AFFINITY, affinity, "affinity")
