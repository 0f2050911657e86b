"""The text that Prometheus reads: families of samples as lines, whoever counted them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """One metric: what it is called and means, and its samples (suffix of the name, labels, value)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: list[tuple[str, Labels, float]] = field(default_factory=list)

    def add(self, value: float, *labels: tuple[str, str]) -> None:
        self.samples.append(("", labels, value))

    def add_histogram(self, bounds: Sequence[float], counts: Sequence[int], total: float, *labels: tuple[str, str]) -> None:
        """`counts` holds what fell below each bound and above the one before, then what was above all; `total` is the sum."""
        below = 0
        for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
            below += count
            self.samples.append(("_bucket", (*labels, ("le", bound)), below))
        self.samples.append(("_sum", labels, total))
        self.samples.append(("_count", labels, below))


def exposed(families: Iterable[Family]) -> str:
    """All families as one text."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for suffix, labels, value in family.samples:
        yield f"{family.name}{suffix}{braces(labels)} {value if isinstance(value, int) else format(value, '.15g')}"


def braces(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
