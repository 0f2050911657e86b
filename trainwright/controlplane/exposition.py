"""Renders metric families in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.core import Metric

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class _Families:
    """The part of a registry that `generate_latest` uses."""

    def __init__(self, families: Iterable[Metric]):
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposition(families: Iterable[Metric]) -> str:
    """Render metric families as text."""
    return generate_latest(_Families(families)).decode()
