"""What is deleted is what no rule keeps, manifest first, and never a file that another export needs."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.checkpoints.catalog import pin_export, read_catalog, read_pins, unpin_export
from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint, PromotionConflict
from trainwright.checkpoints.promotion import Alias
from trainwright.checkpoints.prune import Retention, collect_garbage, prune_exports
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import restore_checkpoint, verify_export
from trainwright.checkpoints.upload import attempt_time, new_attempt
from trainwright.storage import open_store
from trainwright.storage.errors import StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium

LOSSES = {5: 0.5, 10: 0.1, 15: 0.3, 20: 0.4}
WRITE = Callable[..., Path]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "exports" / "run"


@pytest.fixture
def uri(target: Path) -> str:
    return str(StorageUri.from_path(target))


@pytest.fixture
def exported(output: Path, uri: str, write_checkpoint: WRITE) -> dict[int, ExportResult]:
    """Exports of four steps, of which the second is the best and the last the latest. Only the optimizer never changes."""
    return {step: export_step(output, uri, write_checkpoint, step, loss) for step, loss in LOSSES.items()}


def export_step(output: Path, uri: str, write: WRITE, step: int, loss: float) -> ExportResult:
    state = {"global_step": step, "log_history": [{"step": step, "eval_loss": loss}]}
    write(step, b"weights %d" % step, **{"trainer_state.json": json.dumps(state).encode()})
    return export_checkpoint(output, uri, source="run/job", step=step)


def names(uri: str) -> list[str]:
    return [each.name for each in read_catalog(open_store(uri)).exports]


def all_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_catalog_lists_exports_by_publication_and_what_protects_them(exported: dict[int, ExportResult], uri: str) -> None:
    pin_export(open_store(uri), "checkpoint-5", "paper")
    catalog = read_catalog(open_store(uri))
    assert [(each.name, each.protected_by) for each in catalog.exports] == [
        ("checkpoint-5", ("paper",)),
        ("checkpoint-10", ("best",)),
        ("checkpoint-15", ()),
        ("checkpoint-20", ("latest",)),
    ]
    assert catalog.named("checkpoint-10").export.manifest == exported[10].manifest
    with pytest.raises(NoCheckpoint, match="has no export checkpoint-7; exports: checkpoint-5, "):
        catalog.named("checkpoint-7")


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ({}, [5, 10, 15, 20]),
        ({"keep_last": 1}, [10, 20]),
        ({"keep_last": 2}, [10, 15, 20]),
        ({"keep_every": 15}, [10, 15, 20]),
        ({"keep_best": 2}, [10, 15, 20]),
        ({"keep_best": 1, "greater_is_better": True}, [5, 10, 20]),
        ({"keep_best": 1, "metric": "unknown"}, [10, 20]),
        ({"older_than": timedelta(days=1)}, [5, 10, 15, 20]),
        ({"older_than": timedelta(0)}, [10, 20]),
        ({"keep_every": 5}, [5, 10, 15, 20]),
    ],
)
def test_prune_deletes_exports_outside_the_retention_rules(
    exported: dict[int, ExportResult], uri: str, target: Path, rules: dict[str, Any], left: list[int]
) -> None:
    before = all_files(target)
    at = datetime.now(UTC) + timedelta(seconds=1)
    told = prune_exports(uri, Retention(**rules), at=at)
    assert all_files(target) == before
    pruning = prune_exports(uri, Retention(**rules), dry_run=False, at=at)
    assert (told.files, [each.name for each in told.deleted]) == (pruning.files, [each.name for each in pruning.deleted])
    assert names(uri) == [f"checkpoint-{step}" for step in left]
    assert before - all_files(target) == set(pruning.files)
    for step in left:
        assert verify_export(exported[step].uri, digest=exported[step].digest)


def test_a_file_that_another_export_references_stays_until_that_is_deleted_too(
    exported: dict[int, ExportResult], uri: str, target: Path, tmp_path: Path
) -> None:
    assert any(file.key.startswith("../checkpoint-5/") for file in exported[20].manifest.files)
    prune_exports(uri, Retention(keep_last=1), dry_run=False)
    restore_checkpoint(exported[20].uri, tmp_path / "back", digest=exported[20].digest)
    left = {path for path in all_files(target) if path.startswith("checkpoint-5/")}
    assert left == {file.key.removeprefix("../") for file in exported[20].manifest.files if "checkpoint-5/" in file.key}
    assert collect_garbage(uri, dry_run=False, age=timedelta(0), at=datetime.now(UTC) + timedelta(days=1)) == {}


def test_unreadable_manifests_and_pins_stop_deletion(exported: dict[int, ExportResult], uri: str, target: Path) -> None:
    (target / "checkpoint-15" / "manifest.json").write_bytes(b"{")
    for delete in (
        lambda: prune_exports(uri, Retention(keep_last=1), dry_run=False),
        lambda: collect_garbage(uri, dry_run=False, age=timedelta(0)),
    ):
        with pytest.raises(CheckpointError, match=r"checkpoint-15/manifest\.json is not a valid manifest"):
            delete()
    (target / "checkpoint-15" / "manifest.json").unlink()
    (target / "pins.json").write_bytes(b"[]")
    with pytest.raises(CheckpointError, match=r"pins\.json is not valid"):
        prune_exports(uri, Retention(keep_last=1), dry_run=False)


def test_the_manifest_goes_first_and_what_was_left_goes_the_next_time(
    exported: dict[int, ExportResult], uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, deleted = FileStore.delete, []

    def delete(self: FileStore, key: str) -> None:
        if len(deleted) == 2:
            raise StorageError("the connection broke")
        deleted.append(key)
        real(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "delete", delete)
        with pytest.raises(StorageError, match="the connection broke"):
            prune_exports(uri, Retention(keep_last=1), dry_run=False)
    assert deleted == ["checkpoint-15/manifest.json", "checkpoint-5/manifest.json"]
    later = datetime.now(UTC) + timedelta(days=2)
    garbage = collect_garbage(uri, at=later)
    assert garbage
    assert all(key.startswith(("checkpoint-5/", "checkpoint-15/")) for key in garbage)
    assert collect_garbage(uri) == {}  # an attempt of today may still be running
    assert collect_garbage(uri, dry_run=False, at=later) == garbage
    for step in (10, 20):
        assert verify_export(exported[step].uri, digest=exported[step].digest)


def test_pins_of_several_reasons(exported: dict[int, ExportResult], uri: str) -> None:
    store = open_store(uri)
    for reason in ("paper", "champion"):
        pin_export(store, "checkpoint-5", reason)
    unpin_export(store, "checkpoint-5", "paper")
    assert {name: set(reasons) for name, reasons in read_pins(store).items()} == {"checkpoint-5": {"champion"}}
    unpin_export(store, "checkpoint-5")
    assert read_pins(store) == {}
    for name in ("checkpoint-6", "../x", "latest.json"):
        with pytest.raises(NoCheckpoint, match="has no export"):
            pin_export(store, name, "x")


def test_one_alias_names_one_export_and_remembers_the_others(exported: dict[int, ExportResult], uri: str, tmp_path: Path) -> None:
    alias = Alias(str(StorageUri.from_path(tmp_path / "exports")))
    assert alias.read() is None
    first = alias.promote(exported[5].uri, expected="", evaluation={"loss": 0.5}, reason="first")
    assert (first.current.step, first.current.evaluation, first.history) == (5, {"loss": 0.5}, ())
    assert alias.promote(exported[5].uri) == first
    with pytest.raises(PromotionConflict, match=rf"names {exported[5].digest}, not nothing: another export was promoted"):
        alias.promote(exported[10].uri, expected="")
    alias.promote(exported[10].uri, expected=exported[5].digest)
    alias.promote(exported[15].uri)
    assert set(read_pins(open_store(uri))) == {"checkpoint-10", "checkpoint-15"}  # that one, and the one to go back to
    record = alias.roll_back()
    assert [each.step for each in (record.current, *record.history)] == [10, 15, 10, 5]
    prune_exports(uri, Retention(keep_last=1), dry_run=False)
    assert {"checkpoint-10", "checkpoint-15"} <= set(names(uri))
    with pytest.raises(CheckpointError, match="'No' is not an alias"):
        Alias(uri, "No")


def test_of_two_promotions_at_once_one_is_refused(
    exported: dict[int, ExportResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = Alias(str(StorageUri.from_path(tmp_path / "exports")))
    alias.promote(exported[5].uri)
    real = FileStore.compare_and_swap

    def overtaken(self: FileStore, key: str, old: bytes | None, new: bytes) -> bool:
        if key == "champion.json":
            monkeypatch.setattr(FileStore, "compare_and_swap", real)
            alias.promote(exported[15].uri)
        return real(self, key, old, new)

    monkeypatch.setattr(FileStore, "compare_and_swap", overtaken)
    with pytest.raises(PromotionConflict, match="was changed by another promotion meanwhile"):
        alias.promote(exported[10].uri)
    record = alias.read()
    assert record is not None
    assert record.current.step == 15


def test_there_is_nothing_to_go_back_to(exported: dict[int, ExportResult], tmp_path: Path, uri: str) -> None:
    alias = Alias(str(StorageUri.from_path(tmp_path / "exports")))
    with pytest.raises(NoCheckpoint, match="has named no other export before"):
        alias.roll_back()
    alias.promote(exported[5].uri)
    with pytest.raises(NoCheckpoint, match="has named no other export before"):
        alias.roll_back()
    alias.promote(exported[10].uri)
    (tmp_path / "exports" / "run" / "checkpoint-5" / "manifest.json").unlink()
    with pytest.raises(NoCheckpoint, match="contains no export"):
        alias.roll_back()
    (tmp_path / "exports" / "champion.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"champion\.json is not the record of an alias"):
        alias.read()


def test_names_of_attempts_tell_their_time() -> None:
    now = datetime.now(UTC)
    found = attempt_time(f"checkpoint-5/{new_attempt()}/a/b")
    assert found is not None
    assert abs(found - now) < timedelta(seconds=5)
    for key in ("checkpoint-5/manifest.json", f"checkpoint-5/{new_attempt()}", "a/20269999T999999Z-12345678/x", "latest.json"):
        assert attempt_time(key) is None


@pytest.mark.medium
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=8)
@given(data=st.data())
def test_property_whatever_is_exported_pinned_and_pruned_every_listed_export_is_whole(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory, write_checkpoint: WRITE, output: Path
) -> None:
    folder = tmp_path_factory.mktemp("exports")
    uri = str(StorageUri.from_path(folder))
    digests: dict[str, str] = {}
    for _ in range(data.draw(st.integers(2, 7))):
        match data.draw(st.sampled_from(["export", "export", "prune", "pin", "gc"])):
            case "export":
                step, weights = data.draw(st.sampled_from([5, 10, 15])), data.draw(st.sampled_from([b"a", b"b"]))
                write_checkpoint(step, weights * 100_000)
                options = ExportOptions(supersede=True, resumable=data.draw(st.booleans()))
                found = export_checkpoint(output, uri, source="run", step=step, options=options)
                digests[found.uri] = found.digest
            case "prune":
                prune_exports(uri, Retention(keep_last=data.draw(st.integers(1, 2))), dry_run=False)
            case "pin" if listed := names(uri):
                pin_export(open_store(uri), data.draw(st.sampled_from(listed)), "kept")
            case "gc":
                collect_garbage(uri, dry_run=False, at=datetime.now(UTC) + timedelta(days=2))
    for each in read_catalog(open_store(uri)).exports:
        assert verify_export(each.export.uri, digest=digests[each.export.uri])
    pins = set(read_pins(open_store(uri)))
    assert pins <= set(names(uri))
    for key in read_catalog(open_store(uri)).files:
        assert os.path.isfile(folder / key)
