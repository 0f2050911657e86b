"""The dashboard asks for metrics, and by labels, that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainwright.embedded.plane import ControlPlane
from trainwright.trainer.standalone.process import Options, Process

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy/grafana/trainwright.json").read_text("utf-8"))
OF_PROMETHEUS = {"job", "instance", "le"}
"""Labels that the scrape adds, and that a histogram has."""


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def series(text: str) -> dict[str, set[str]]:
    """The names of all series in an exposition, with the labels that they have."""
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


@pytest.mark.medium
def test_every_metric_and_label_exists(nodeless: ControlPlane, metrics: Callable[[], str]) -> None:
    waiting: Any = Process(nodeless.cluster, Options(leader_election=None))  # type: ignore[arg-type]
    metrics()  # so that there is a request to tell of
    told = series(metrics() + waiting.metrics()[1])
    for expression in expressions():
        names = re.findall(r"\b((?:trainwright|apiserver)_\w+)", expression)
        assert names, expression
        for name in names:
            assert name in told, f"{name} in {expression}"
            asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
            asked |= {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
            assert asked <= told[name] | OF_PROMETHEUS, expression


def test_panels_do_not_overlap_and_all_have_a_title() -> None:
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 and p["title"] for p in DASHBOARD["panels"])
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(places)
