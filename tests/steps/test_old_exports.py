"""Exports of earlier runs are deleted but for the last ones: never promoted ones, and never those of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.export_fixtures import Export

from trainwright.checkpoints.catalog import pin_export
from trainwright.checkpoints.exported import open_export
from trainwright.checkpoints.manifest import LATEST
from trainwright.checkpoints.pointers import update_latest
from trainwright.checkpoints.promotion import Alias
from trainwright.steps.checkpoints.export import delete_old_exports
from trainwright.storage.errors import NotMounted
from trainwright.storage.open import open_store


@pytest.fixture
def runs(export: Callable[[str], Export]) -> list[Export]:
    """Exports of five runs, each of which is the latest one of its run."""
    made = [export(f"run-{number}") for number in range(5)]
    for uri, digest in made:
        update_latest(open_store(uri).parent(), "checkpoint-5", open_export(uri, digest).manifest)
    return made


def left(tmp_path: Path) -> list[str]:
    return sorted(path.parent.parent.name for path in (tmp_path / "exports").glob("*/*/manifest.json"))


def test_the_last_runs_are_kept(root: str, runs: list[Export], tmp_path: Path) -> None:
    assert delete_old_exports(root, runs, keep=2) == [uri for uri, _ in runs[:3]]
    assert left(tmp_path) == ["run-3", "run-4"]
    assert not (tmp_path / "exports" / "run-0" / LATEST).exists()
    assert delete_old_exports(root, runs, keep=2) == []  # a retry


def test_a_run_that_published_again_is_young(root: str, runs: list[Export], tmp_path: Path) -> None:
    delete_old_exports(root, [*runs, runs[0]], keep=1)
    assert left(tmp_path) == ["run-0"]


def test_zero_keeps_all(root: str, runs: list[Export], tmp_path: Path) -> None:
    assert delete_old_exports(root, runs, keep=0) == []
    assert len(left(tmp_path)) == 5
    with pytest.raises(ValueError, match="must not be negative"):
        delete_old_exports(root, runs, keep=-1)


def test_the_champion_the_one_before_it_and_pinned_ones_are_kept(
    root: str,
    runs: list[Export],
    tmp_path: Path,
) -> None:
    for uri, digest in runs[:3]:
        Alias(root).promote(uri, digest=digest)
    pin_export(open_store(runs[3][0]).parent(), "checkpoint-5", "audit")
    assert delete_old_exports(root, runs, keep=1) == [runs[0][0]]
    assert left(tmp_path) == ["run-1", "run-2", "run-3", "run-4"]
    assert Alias(root).roll_back().current.uri == runs[1][0]


def test_exports_published_elsewhere_are_left_alone(
    root: str,
    runs: list[Export],
    tmp_path: Path,
) -> None:
    """Whoever may create asset events may name any URI in them."""
    foreign = [
        (f"{root}/run-0/../run-1/checkpoint-5", runs[1][1]),
        (f"{root}/../exports/run-1/checkpoint-5", runs[1][1]),
        (f"{root}/run-1", runs[1][1]),
        ("", ""),
        (runs[1][0], "sha256:" + "0" * 64),
    ]
    assert delete_old_exports(root, [*foreign, runs[4]], keep=1) == []
    assert delete_old_exports(f"{root}/run-1", runs, keep=1) == []
    assert len(left(tmp_path)) == 5


def test_exports_out_of_sight_are_not_taken_for_deleted() -> None:
    exports = "file:///no-such-volume/exports"
    published = [(f"{exports}/run-{number}/checkpoint-5", f"sha256:{number}") for number in range(2)]
    with pytest.raises(NotMounted):
        delete_old_exports(exports, published, keep=1)
