"""The suite itself: what it makes on a given cluster is its own, and is taken apart as the table of scenes says."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest
from support.waiting import eventually

from acceptance.clusters import ClusterUnderTest, Options
from acceptance.rights import own_manifests, rights, without
from acceptance.turns import turn
from acceptance.verdicts import Verdicts
from trainwright.jobs.submit.rbac_manifests import ServiceAccount, rbac_manifests

PRINTED = rbac_manifests("team", [ServiceAccount("team", "runner")])


def test_own_manifests_grant_what_is_printed_under_other_names() -> None:
    own = own_manifests(PRINTED, "run-1", {"l": "run"}, {"team", "kubeflow-system"})
    assert list(rights(own)) == list(rights(PRINTED))
    assert not {obj["metadata"]["name"] for obj in own} & {obj["metadata"]["name"] for obj in PRINTED}
    roles = {obj["metadata"]["name"] for obj in own if "rules" in obj}
    assert {obj["roleRef"]["name"] for obj in own if "roleRef" in obj} == roles
    assert all(obj["metadata"]["labels"] == {"l": "run"} for obj in own)


def test_own_manifests_leave_out_namespaces_that_do_not_exist() -> None:
    own = own_manifests(PRINTED, "run-1", {}, {"team"})
    assert {obj["metadata"].get("namespace", "") for obj in own} == {"team", ""}


def test_without_takes_one_verb_and_empty_rules() -> None:
    for right in rights(PRINTED):
        left = list(rights(without(PRINTED, lambda other, right=right: other == right)))  # type: ignore[misc]
        assert left == [other for other in rights(PRINTED) if other != right]
    reduced = without(PRINTED, lambda right: right.resource == "events")
    assert all(rule["verbs"] for obj in reduced for rule in obj.get("rules") or [])


@pytest.mark.parametrize("kind", ["Pod", "ResourceQuota"])
def test_namespaces_of_others_are_refused(tmp_path: Path, kind: str) -> None:
    cluster = ClusterUnderTest(tmp_path / "none", "run", tmp_path, Options())
    obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "p", "namespace": "production"}}
    with pytest.raises(AssertionError, match="not made by this run: production"):
        cluster.apply(obj)
    with pytest.raises(AssertionError, match="not made by this run: production"):
        cluster.remove_namespace("production")


def test_turn_alone_waits_for_all_others(tmp_path: Path) -> None:
    order: list[str] = []

    def alone() -> None:
        with turn(tmp_path, alone=True):
            order.append("alone")

    with turn(tmp_path, alone=False), turn(tmp_path, alone=False):
        thread = threading.Thread(target=alone)
        thread.start()
        with (tmp_path / "door").open("ab") as door:
            eventually(lambda: _is_held(door), 10, "it keeps the door")
        order.append("others")
    thread.join(10)
    assert order == ["others", "alone"]


def _is_held(door: IO[bytes]) -> bool:
    try:
        fcntl.flock(door, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(door, fcntl.LOCK_UN)
    return False


CRASH = "AssertionError: said no\nthe person saw:\n$ trainwright"


def _report(outcome: str, when: str = "call", **more: object) -> SimpleNamespace:
    own = {"skipped": outcome == "skipped", "failed": outcome == "failed", "passed": outcome == "passed"}
    return SimpleNamespace(nodeid="tests/acceptance/test_scenes.py::test_scene[g: one]", when=when, duration=1.5, **own, **more)


VERDICTS = {
    "passed": ([_report("passed", "setup"), _report("passed")], ("passed", "")),
    "skipped": ([_report("skipped", "setup", longrepr=("f", 1, "Skipped: no quotas"))], ("skipped", "no quotas")),
    "failed": ([_report("failed", longrepr=SimpleNamespace(reprcrash=SimpleNamespace(message=CRASH)))], ("failed", "said no")),
    "known": ([_report("skipped", wasxfail="item 4")], ("known fault", "item 4")),
    "mended": ([_report("passed", wasxfail="item 4")], ("passed", "no longer: item 4")),
    "teardown": ([_report("passed"), _report("failed", "teardown", longrepr="no cluster")], ("failed", "no cluster")),
}


@pytest.mark.parametrize(("reports", "expected"), VERDICTS.values(), ids=VERDICTS)
def test_verdicts_say_what_was_wrong(reports: list[SimpleNamespace], expected: tuple[str, str]) -> None:
    verdicts = Verdicts()
    for report in reports:
        verdicts.pytest_runtest_logreport(report)
    assert verdicts._verdicts == {"g: one": expected}
    assert verdicts._seconds == {"g: one": 1.5 * len(reports)}
