"""The setting `topology`: which pods of a job run near each other. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

EXCLUSIVE_ANNOTATION = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_KUEUE_TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
_LABEL_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_TOPOLOGY = re.compile(rf"(required|preferred|exclusive):({_LABEL_KEY})|unconstrained")


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
