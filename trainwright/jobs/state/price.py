"""Prices of a node and of a GPU for an hour, as annotations of a TrainJob or of its runtime: `2.50 USD`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.objects import Obj, annotations_of

_PRICE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(?: ([A-Za-z]{1,8}))?")


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


def prices_of_runtime(runtime: Obj) -> dict[str, str]:
    """Return the annotations of a runtime that name prices, for the jobs that run it."""
    known = (names.NODE_PRICE_ANNOTATION, names.GPU_PRICE_ANNOTATION)
    return {name: value for name, value in annotations_of(runtime).items() if name in known}


def _price(annotations: Mapping[str, str], name: str) -> tuple[float, str] | None:
    if not (text := annotations.get(name, "")):
        return None
    match = _PRICE.fullmatch(text)
    if match is None:
        raise BadPrice(f"{name}: {text[:40]!r} is no price; expected a number and perhaps a currency, such as 2.50 USD")
    return float(match[1]), match[2] or ""
