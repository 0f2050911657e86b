"""The embedded API server against recordings of a real one: HTTP requests and kubectl sessions, answer by answer.

What still differs is listed with its reason (and told in docs/conformance.md); a difference that is not listed fails, and so
does an entry of the list that is no difference any more.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubectl_session
import pytest
import wire_compare
import wire_exchanges
from recording_archives import recordings_of
from support.cluster_under_test import cluster, other_cluster

pytestmark = pytest.mark.medium

WIRE = recordings_of("wire")
HTTP_DIFFERENCES = {
    "create-protobuf": "answers are JSON, also where protobuf is asked for",
    "discovery-aggregated-core": "only subresources that are served are listed: no ephemeralcontainers, proxy",
}
AGE_IN_DAYS = re.compile(r"\(\d+d ago\)")
"""Counted from the day of the recording, which moves away."""
NOT_ENFORCED = "this cluster stores it, and does not enforce it"
"""A warning that this cluster adds, about PodGroups and the like."""
BY_CHANCE = {
    "diff-replace-edit": "the editor of the session changes the namespace as well where its random name ends in v",
}
"""Sessions that differ now and then on the recorded cluster too: the best of so many runs counts."""
RUNS = 4
LONG = ("apply-server", "diff-replace-edit", "patch-label-annotate")
"""Sessions of about 20 commands each, of verbs that the recordings of HTTP ask for in more detail."""
WIDE = pytest.mark.wide(part="clients")
RECORDED_KUBECTL = "v1.33."
OTHER_KUBECTL = {
    "mistakes": ({9, 37}, "kubectl 1.33 looks for definitions when a kind is unknown, and words an unknown command otherwise"),
}
"""Commands that differ with another kubectl than the recorded one."""

Note = Callable[[str, object], None]


def _slugs(folder: str) -> list[str]:
    return sorted(path.stem for path in (WIRE / folder).glob("*.yaml"))


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster without a node, as the recorded one was."""
    with cluster(tmp_path_factory.mktemp("wire"), node=False) as path:
        yield path


@pytest.mark.skipif(not _slugs("http"), reason=f"there are no recordings in {WIRE}")
@pytest.mark.parametrize("slug", _slugs("http"))
def test_http(slug: str, kubeconfig: Path, record_property: Note) -> None:
    recorded = wire_exchanges.load(WIRE / "http" / f"{slug}.yaml")
    record_property("area", f"HTTP: {recorded['area']}")
    steps = [{key: value for key, value in step.items() if key != "expected"} for step in recorded["steps"]]
    replayed = _replay(dict(recorded, steps=steps), kubeconfig)
    found = [
        difference
        for difference in wire_compare.differences(recorded, replayed)
        if not _is_an_age(difference) and NOT_ENFORCED not in difference
    ]
    if other_cluster() is None and slug in HTTP_DIFFERENCES:
        assert found, f"{slug} is listed as a difference and is none any more: take it off the list"
        pytest.xfail(HTTP_DIFFERENCES[slug])
    assert not found, "\n".join(found)


@pytest.mark.skipif(not _slugs("kubectl"), reason=f"there are no recordings in {WIRE}")
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("slug", [pytest.param(slug, marks=WIDE if slug in LONG else ()) for slug in _slugs("kubectl")])
def test_kubectl(slug: str, kubeconfig: Path, record_property: Note) -> None:
    record_property("area", "kubectl")
    runs = RUNS if slug in BY_CHANCE else 1
    told = next((text for text in (_session(slug, kubeconfig) for _ in range(runs - 1)) if not text), None)
    told = _session(slug, kubeconfig) if told is None else told
    commands, reason = OTHER_KUBECTL.get(slug, (set(), ""))
    if told and _differing(told) <= commands and not _kubectl_version().startswith(RECORDED_KUBECTL):
        pytest.xfail(reason)
    assert not told, told


def _replay(case: dict[str, Any], kubeconfig: Path) -> dict[str, Any]:
    """The case with the answer of each step, and the order of the versions that the answers show."""
    answers, order = wire_exchanges.replay(case, wire_exchanges.Server(str(kubeconfig)))
    steps = [step if answer is None else step | {"expected": answer} for step, answer in zip(case["steps"], answers, strict=True)]
    shown = set(re.findall(r"\brv\d+\b", json.dumps(answers)))
    return case | {"steps": steps, "rv_order": [version for version in order if version in shown]}


def _session(slug: str, kubeconfig: Path) -> str:
    """What differs in a session; empty where nothing does."""
    server = wire_exchanges.Server(str(kubeconfig))
    return kubectl_session.check(WIRE / "kubectl" / f"{slug}.yaml", server, str(shutil.which("kubectl")))


def _differing(told: str) -> set[int]:
    """The commands of a session that differ; a session that broke off differs in command 0."""
    return {int(number) for number in re.findall(r"^ +command (\d+) \(", told, re.MULTILINE)} or {0}


def _kubectl_version() -> str:
    done = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, timeout=30)
    found = re.search(r"Client Version: (\S+)", done.stdout)
    return found[1] if found else ""


def _is_an_age(difference: str) -> bool:
    """Whether both sides of a difference are the same but for an age in days."""
    sides = re.search(r": expected (.*), got (.*)$", difference)
    return sides is not None and AGE_IN_DAYS.sub("", sides[1]) == AGE_IN_DAYS.sub("", sides[2])
