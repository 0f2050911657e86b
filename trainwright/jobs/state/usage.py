"""Node-hours and GPU-hours of a job, computed from its pods, and what they cost. Pure.

Pods that were deleted before they were observed do not count, so the figures are lower bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.api.objects import Obj, annotations_of
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.jobs.state.price import BadPrice, prices_in
from trainwright.text.text_input import is_number

log = logging.getLogger(__name__)
_DIGITS = 4


@dataclass(frozen=True)
class Usage:
    """Hours for which training nodes, and GPUs on them, were allocated. `cost` is None without a price, `currency` what it names."""

    node_hours: float = 0.0
    gpu_hours: float = 0.0
    cost: float | None = None
    currency: str = ""

    def __add__(self, other: Usage) -> Usage:
        """Add the usage of another attempt. A cost that is not known of both, or in two currencies, is not known."""
        if self == NO_USAGE or other == NO_USAGE:
            return other if self == NO_USAGE else self
        nodes, gpus = self.node_hours + other.node_hours, self.gpu_hours + other.gpu_hours
        if self.cost is None or other.cost is None or self.currency != other.currency:
            return Usage(nodes, gpus)
        return Usage(nodes, gpus, self.cost + other.cost, self.currency)

    def __str__(self) -> str:
        return ", ".join(self.parts())

    def parts(self) -> list[str]:
        """Return what there is as texts, such as `1.25 node-hours`."""
        named = (("node-hours", self.node_hours), ("GPU-hours", self.gpu_hours))
        cost = [f"{self.cost:.2f} {self.currency}".strip()] if self.cost is not None else []
        return [*(f"{hours:.2f} {name}" for name, hours in named if hours), *(f"cost {text}" for text in cost)]

    def figures(self) -> dict[str, float]:
        """Return the numbers by name, as metrics."""
        hours = {"node_hours": round(self.node_hours, _DIGITS), "gpu_hours": round(self.gpu_hours, _DIGITS)}
        return hours if self.cost is None else {**hours, "cost": round(self.cost, _DIGITS)}

    def as_dict(self) -> dict[str, Any]:
        """Return it as a JSON object, which `from_dict` reads."""
        return {**self.figures(), **({"currency": self.currency} if self.currency else {})}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Usage:
        """Return what `as_dict` wrote; without the numbers that are none."""
        found = {name: float(value[name]) for name in ("node_hours", "gpu_hours", "cost") if is_number(value.get(name))}
        currency = value.get("currency")
        return cls(**found, currency=currency if isinstance(currency, str) else "")


NO_USAGE = Usage()


def usage_of(history: PodHistory, trainjob: Obj, now: float) -> Usage:
    """Return what the training pods used, as far as they were observed; `now` is in seconds since the epoch.

    A pod that is gone has ended when it was last seen, or deleted. The price is that of the job's annotations.
    """
    hours = history.hours(now)
    return _priced(Usage(hours.nodes, hours.gpus), trainjob)


def _priced(usage: Usage, trainjob: Obj) -> Usage:
    try:
        prices = prices_in(annotations_of(trainjob))
    except BadPrice as error:  # a submission refuses it; others may have written the job
        log.warning("event=price_ignored reason=%r", str(error))
        return usage
    if prices is None:
        return usage
    cost = usage.node_hours * prices.node_hour + usage.gpu_hours * prices.gpu_hour
    return Usage(usage.node_hours, usage.gpu_hours, cost, prices.currency)
