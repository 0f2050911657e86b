"""Node-hours and GPU-hours of a job, computed from its pods, and what they cost. Pure.

Pods that were deleted before they were observed do not count, so the figures are lower bounds.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of
from trainwright.jobs.state.pod_history import PodHistory
from trainwright.text.text_input import is_number

log = logging.getLogger(__name__)
_DIGITS = 4
_PRICE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?: ([A-Za-z]{1,8}))?")
_SAVED = re.compile(r"; saves ([0-9]{1,6}\.[0-9]{2}) h of training\Z")


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


class BadPrice(ValueError):
    """An annotation is no price; the message names it."""


@dataclass(frozen=True)
class Prices:
    """For an hour of a node, without its GPUs, and of a GPU."""

    node_hour: float = 0.0
    gpu_hour: float = 0.0
    currency: str = ""


def prices_in(annotations: Mapping[str, str]) -> Prices | None:
    """Return the prices that annotations name, or None if they name none. Raises BadPrice, also for two currencies."""
    node, gpu = (_price(annotations, name) for name in (names.NODE_PRICE_ANNOTATION, names.GPU_PRICE_ANNOTATION))
    if node is None and gpu is None:
        return None
    currencies = sorted({price[1] for price in (node, gpu) if price is not None})
    if len(currencies) > 1:
        raise BadPrice(f"{names.NODE_PRICE_ANNOTATION} and {names.GPU_PRICE_ANNOTATION} are in different currencies; use one")
    return Prices(node[0] if node else 0.0, gpu[0] if gpu else 0.0, currencies[0])


def _price(annotations: Mapping[str, str], name: str) -> tuple[float, str] | None:
    if not (text := annotations.get(name, "")):
        return None
    match = _PRICE.fullmatch(text)
    if match is None:
        raise BadPrice(f"{name}: {text[:40]!r} is no price; expected a number and perhaps a currency, such as 2.50 USD")
    return float(match[1]), match[2] or ""


def prices_of_runtime(runtime: Obj) -> dict[str, str]:
    """Return the annotations of a runtime that name prices, for the jobs that run it."""
    known = (names.NODE_PRICE_ANNOTATION, names.GPU_PRICE_ANNOTATION)
    return {name: value for name, value in annotations_of(runtime).items() if name in known}


def saved_text(seconds: float) -> str:
    """Return what `started_from` says of the time that was saved; empty if that is hardly any."""
    hours = seconds / 3600
    return f"; saves {hours:.2f} h of training" if hours >= 0.01 else ""


def saved_hours(started_from: str) -> float:
    """Return the hours that the text of `saved_text` says, else 0."""
    match = _SAVED.search(started_from)
    return float(match[1]) if match is not None else 0.0


NO_USAGE = Usage()
