"""An export is what its manifest says, is made once, and names itself latest only when it is."""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from checkpoint_files import checkpoint_files, stored_files, stored_path

from trainwright.checkpoints.errors import CheckpointError, DivergedCheckpoint, NoCheckpoint
from trainwright.checkpoints.manifest import Manifest
from trainwright.checkpoints.pointers import Metric
from trainwright.checkpoints.publish import ExportOptions, ExportResult, export_checkpoint
from trainwright.checkpoints.restore import verify_export
from trainwright.storage.errors import BadUri, LockLost, NotFound, StorageError
from trainwright.storage.file_store import FileStore
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "exports"


def export(output: Path, target: Path, **options: object) -> ExportResult:
    return export_checkpoint(output, str(StorageUri.from_path(target)), source="run/job", **options)  # type: ignore[arg-type]


def latest(target: Path) -> dict[str, object]:
    pointer: dict[str, object] = json.loads((target / "latest.json").read_bytes())
    return pointer


def all_files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_manifest_lists_every_file_as_it_lies_there(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    exported = export(output, target, metadata={"loss": 0.5})
    files = stored_files(target / "checkpoint-5")
    manifest = Manifest.parse((target / "checkpoint-5" / "manifest.json").read_bytes(), "")
    assert len(all_files(target / "checkpoint-5")) == len(files) + 1
    assert {f.path: (f.size, f.sha256) for f in manifest.files} == {
        name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()
    }
    assert set(files) == {*all_files(output / "checkpoint-5")} - {"training_args.bin"}
    assert (manifest.step, manifest.source, manifest.metadata) == (5, "run/job", {"loss": 0.5})
    assert not exported.existed
    assert exported.manifest == manifest
    assert latest(target) == {
        "checkpoint": "checkpoint-5",
        "step": 5,
        "manifest": exported.digest,
        "created": manifest.created,
        "resumable": True,
    }
    assert verify_export(exported.uri, digest=exported.digest) == manifest


def test_nothing_else_is_left_in_either_folder(output: Path, target: Path, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5)
    export(output, target)
    assert sorted(path.name for path in output.iterdir()) == ["checkpoint-5"]
    assert sorted(path.name for path in target.iterdir()) == ["checkpoint-5", "latest.json"]


def test_weights_alone_leave_the_state_of_the_training_behind(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    exported = export(output, target, options=ExportOptions(resumable=False))
    assert not exported.manifest.resumable
    names = {file.path for file in exported.manifest.files}
    assert names == {"adapter_model.safetensors", "adapter_config.json", "nested/ü.txt", "trainer_state.json"}


def test_a_second_export_touches_no_file(output: Path, target: Path, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5)
    first = export(output, target)
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    second = export(output, target)
    assert second.existed
    assert second.manifest == first.manifest
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before


@pytest.mark.parametrize(
    "damage", [lambda p: p.unlink(), lambda p: p.write_bytes(b"x"), lambda p: p.write_bytes(p.read_bytes()[:-1] + b"!")]
)
def test_a_second_export_mends_a_damaged_file(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], damage: Callable[[Path], object]
) -> None:
    write_checkpoint(5)
    first = export(output, target)
    damage(stored_path(target / "checkpoint-5", "adapter_model.safetensors"))
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors"):
        verify_export(first.uri)
    second = export(output, target)
    assert second.existed
    assert verify_export(second.uri, digest=first.digest)


def test_another_checkpoint_of_the_same_step_is_refused_and_harms_nothing(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    first = export(output, target)
    write_checkpoint(5, b"others!")
    with pytest.raises(
        CheckpointError, match=r"is a different checkpoint of this step, of run/job \(adapter_model.safetensors differs\)"
    ):
        export(output, target)
    assert verify_export(first.uri, digest=first.digest)
    assert latest(target)["manifest"] == first.digest


def test_an_export_supersedes_another_one_of_its_step_if_that_is_asked_for(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    digests = [export(output, target).digest]
    for number in (2, 3):
        write_checkpoint(5, b"other %d" % number)
        exported = export(output, target, options=ExportOptions(supersede=True))
        assert exported.uri.endswith(f"/checkpoint-5.{number}")
        assert exported.manifest.supersedes == digests[-1]
        assert latest(target)["checkpoint"] == f"checkpoint-5.{number}"
        assert export(output, target).digest == exported.digest  # once more is the same one
        digests.append(exported.digest)
    for name, digest in zip(["checkpoint-5", "checkpoint-5.2", "checkpoint-5.3"], digests, strict=True):
        assert verify_export(str(StorageUri.from_path(target / name)), digest=digest)


def test_a_file_that_another_rank_wrote_later_is_exported_with_the_next_one(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    folder = write_checkpoint(5)
    first = export(output, target)
    (folder / "late.txt").write_bytes(b"late")
    second = export(output, target)
    assert (second.existed, second.manifest.supersedes) == (False, first.digest)
    assert {f.path for f in second.manifest.files} - {f.path for f in first.manifest.files} == {"late.txt"}
    assert sum(file.key.startswith("../checkpoint-5/") for file in second.manifest.files) == len(first.manifest.files) - 1


def test_weights_alone_replace_no_export_with_the_state_of_the_training(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    whole = export(output, target)
    weights = export(output, target, options=ExportOptions(resumable=False))
    assert (weights.existed, weights.digest) == (True, whole.digest)
    write_checkpoint(10)
    export(output, target, options=ExportOptions(resumable=False))
    assert latest(target)["checkpoint"] == "checkpoint-5"  # the last one to resume from
    assert export(output, target).uri.endswith("checkpoint-10.2")
    assert latest(target)["checkpoint"] == "checkpoint-10.2"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b"\xff"])
def test_a_manifest_that_is_none_is_never_written_over(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], content: bytes
) -> None:
    write_checkpoint(5)
    (target / "checkpoint-5").mkdir(parents=True)
    (target / "checkpoint-5" / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        export(output, target)
    assert all_files(target) == {"checkpoint-5/manifest.json": content}


def test_the_same_step_is_exported_by_many_at_once_and_published_by_one(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5, os.urandom(100_000))
    barrier = threading.Barrier(6)

    def run(_: int) -> ExportResult:
        barrier.wait()
        return export(output, target)

    with ThreadPoolExecutor(6) as pool:
        exports = list(pool.map(run, range(6)))
    assert sorted(e.existed for e in exports) == [False] + [True] * 5
    assert len({e.digest for e in exports}) == 1
    assert verify_export(exports[0].uri, digest=exports[0].digest)
    assert sorted(path.name for path in target.iterdir()) == ["checkpoint-5", "latest.json"]
    assert [path.name for path in output.iterdir()] == ["checkpoint-5"]


def test_two_runs_racing_for_one_name_never_publish_a_mixture(
    tmp_path: Path, output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    others = tmp_path / "others"
    for round_ in range(1, 6):
        write_checkpoint(round_, b"ours" * 1000)
        shutil.copytree(output, others)
        write_checkpoint(round_, b"them" * 1000)
        barrier = threading.Barrier(2)

        def run(folder: Path, barrier: threading.Barrier = barrier, step: int = round_) -> str:
            barrier.wait()
            try:
                return export(folder, target, step=step).digest
            except CheckpointError:
                return ""

        with ThreadPoolExecutor(2) as pool:
            digests = sorted(pool.map(run, (output, others)))
        assert digests[0] == ""
        assert verify_export(str(StorageUri.from_path(target / f"checkpoint-{round_}")), digest=digests[1])
        shutil.rmtree(others)


def test_latest_is_what_was_published_last(output: Path, target: Path, write_checkpoint: Callable[..., Path]) -> None:
    for step in (5, 10, 20):
        write_checkpoint(step)
    expected = [(20, 20), (5, 5), (10, 10), (20, 10)]  # 20 was published long before
    assert [(step, latest(target)["step"]) for step, _ in expected if export(output, target, step=step)] == expected


def test_best_is_the_one_with_the_best_metric(output: Path, target: Path, write_checkpoint: Callable[..., Path]) -> None:
    def best(target: Path) -> int:
        return int(json.loads((target / "best.json").read_bytes())["step"])

    for step, loss in ((5, 0.5), (10, 0.2), (15, 0.3), (20, float("nan"))):
        history = [{"step": step - 1, "eval_loss": 0.0}, {"step": step, "eval_loss": loss, "epoch": 1.0}]
        state = json.dumps({"global_step": step, "log_history": history}).encode()
        write_checkpoint(step, **{"trainer_state.json": state})
    steps = [(best(target), latest(target)["step"]) for step in (5, 10, 15, 20) if export(output, target, step=step)]
    assert steps == [(5, 5), (10, 10), (10, 15), (10, 20)]
    greater = Metric("eval_loss", greater_is_better=True)
    export(output, target, step=5, options=ExportOptions(metric=greater))
    assert best(target) == 5  # chosen by another rule from now on
    export(output, target, step=10, options=ExportOptions(metric=Metric("bleu")))
    assert best(target) == 5


def test_latest_never_goes_back_when_a_later_step_is_published_between_look_and_write(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (5, 10):
        write_checkpoint(step)
    later = threading.Thread(target=lambda: export(output, target, step=10))
    real = FileStore.read

    def read(self: FileStore, key: str) -> bytes:
        try:
            return real(self, key)
        finally:
            if key == "latest.json" and later.ident is None:
                later.start()
                later.join(0.3)  # it has to wait for us; one that does not is done by then

    monkeypatch.setattr(FileStore, "read", read)
    export(output, target, step=5)
    later.join()
    assert latest(target)["step"] == 10


def test_latest_does_not_stay_on_an_export_that_is_gone(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    for step in (5, 10):
        write_checkpoint(step)
    export(output, target, step=10)
    (target / "checkpoint-10" / "manifest.json").unlink()
    export(output, target, step=5)
    assert latest(target)["step"] == 5


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b'{"step": "x"}', b'{"step": 99}', b'{"step": 9, "manifest": "a", "checkpoint": "../x"}', b"[" * 100_000],
)
def test_a_latest_that_makes_no_sense_is_replaced(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], content: bytes
) -> None:
    write_checkpoint(5)
    target.mkdir()
    (target / "latest.json").write_bytes(content)
    export(output, target)
    assert latest(target)["step"] == 5


def test_without_a_step_the_newest_whole_one_is_exported(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    write_checkpoint(10, **{"trainer_state.json": None})
    assert export(output, target).manifest.step == 5
    with pytest.raises(CheckpointError, match=r"checkpoint-10 is incomplete: trainer_state.json"):
        export(output, target, step=10)
    with pytest.raises(NoCheckpoint, match="has no checkpoint of step 7; available steps: 5, 10"):
        export(output, target, step=7)


def test_progress_is_told_once_for_every_byte(output: Path, target: Path, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5)
    for _ in range(2):
        totals: list[int] = []
        counted: list[int] = []

        def start_progress(total: int, totals: list[int] = totals, counted: list[int] = counted) -> Callable[[int], None]:
            totals.append(total)
            return counted.append

        export(output, target, start_progress=start_progress)
        assert totals == [sum(counted)]


def test_a_target_that_cannot_be_one_is_refused_first(output: Path, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5)
    with pytest.raises(StorageError, match="hf:// is not a store"):
        export_checkpoint(output, "hf://org/name", source="")
    with pytest.raises(BadUri):
        export_checkpoint(output, "exports", source="")


def test_a_link_in_place_of_an_export_is_not_written_through(
    tmp_path: Path, output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    write_checkpoint(5)
    (tmp_path / "elsewhere").mkdir()
    target.mkdir()
    (target / "checkpoint-5").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="link out of"):
        export(output, target)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_name_that_is_no_text_is_refused_before_anything_is_sent(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    folder = write_checkpoint(5)
    try:
        (folder / os.fsdecode(b"\xff.txt")).write_bytes(b"")
    except OSError:
        pytest.skip("this file system takes only Unicode names")
    with pytest.raises(CheckpointError, match="must be valid Unicode"):
        export(output, target)
    assert not (target / "checkpoint-5").exists()


def test_files_behind_links_inside_the_checkpoint_are_exported_as_files(
    output: Path, target: Path, write_checkpoint: Callable[..., Path]
) -> None:
    folder = write_checkpoint(5)
    shutil.move(folder / "adapter_config.json", folder / "blob")
    (folder / "adapter_config.json").symlink_to("blob")
    exported = export(output, target)
    assert not stored_path(target / "checkpoint-5", "adapter_config.json").is_symlink()
    assert verify_export(exported.uri)


def test_three_hundred_files_are_exported(output: Path, target: Path, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5, **{f"shards/{number:03}": b"%d" % number for number in range(300)})
    exported = export(output, target)
    assert len(exported.manifest.files) == 307
    assert verify_export(exported.uri)


@pytest.mark.parametrize("kind", ["environment", "elsewhere", "folder", "dangling", "pipe"])
def test_irregular_files_are_refused_before_any_upload(
    tmp_path: Path, output: Path, target: Path, write_checkpoint: Callable[..., Path], kind: str
) -> None:
    planted = write_checkpoint(5) / "extra.json"
    (tmp_path / "secret").write_bytes(b"canary")
    leads_to = {
        "environment": Path("/proc/self/environ"),
        "elsewhere": tmp_path / "secret",
        "folder": tmp_path,
        "dangling": tmp_path / "nothing",
    }
    if kind == "pipe":
        os.mkfifo(planted)
    else:
        planted.symlink_to(leads_to[kind])
    with pytest.raises(CheckpointError, match=r"only regular files inside the folder are read: extra\.json is a .*; remove them"):
        export(output, target)
    assert not list(target.rglob("*.json"))
    assert [path.name for path in output.iterdir()] == ["checkpoint-5"]


def test_a_link_that_appears_while_the_files_are_pinned_is_not_exported(
    tmp_path: Path, output: Path, target: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(5)
    (tmp_path / "secret").write_bytes(b"canary")
    real = os.link

    def link(source: Path, *args: Any, **options: Any) -> None:
        if source.name == "adapter_config.json":
            (folder / source.name).unlink()
            (folder / source.name).symlink_to(tmp_path / "secret")
        real(source, *args, **options)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(CheckpointError, match=r"removed or changed|adapter_config\.json is a link"):
        export(output, target)
    assert not any(path.read_bytes() == b"canary" for path in target.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["trainer_state.json", "adapter_model.safetensors", "optimizer.pt", "adapter_config.json"])
def test_a_pipe_in_place_of_a_file_stops_nobody(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], name: str
) -> None:
    folder = write_checkpoint(5)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(CheckpointError, match=f"{name}.* is a named pipe|{name}.*missing|{name}: its header cannot be read"):
        export(output, target)


def test_a_link_is_no_checkpoint(output: Path, target: Path, write_checkpoint: Callable[..., Path]) -> None:
    write_checkpoint(5)
    (output / "checkpoint-9").symlink_to("checkpoint-5")
    assert export(output, target).manifest.step == 5


@pytest.mark.parametrize("name", ["manifest.json", "manifest.json/nested"])
def test_a_file_with_the_name_of_the_manifest_is_refused_before_anything_is_sent(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], name: str
) -> None:
    write_checkpoint(5, **{name: b"{}"})
    with pytest.raises(
        CheckpointError, match=r"checkpoint-5/manifest\.json has the name of the export's own manifest; rename it"
    ):
        export(output, target)
    assert not (target / "checkpoint-5").exists()


def test_a_final_model_is_exported_without_our_own_records(output: Path, target: Path) -> None:
    output.mkdir()
    for name, content in checkpoint_files(7).items():
        if name in ("adapter_model.safetensors", "adapter_config.json", "trainer_state.json"):
            (output / name).write_bytes(content)
    (output / ".trainwright-jobs.json").write_text("[]")
    exported = export(output, target)
    assert (exported.manifest.format, exported.manifest.step) == ("model", 7)
    assert set(stored_files(target / "checkpoint-7")) == {
        "adapter_model.safetensors",
        "adapter_config.json",
        "trainer_state.json",
    }


@pytest.mark.parametrize(
    ("last", "is_refused"),
    [
        ({"loss": float("nan")}, True),
        ({"loss": 0.0, "grad_norm": float("nan")}, True),
        ({"loss": 1.5, "grad_norm": float("inf")}, False),
        ({"loss": 1.5, "grad_norm": 2.0}, False),
    ],
)
def test_checkpoint_of_a_diverged_training_is_refused(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], last: dict[str, float], is_refused: bool
) -> None:
    folder = write_checkpoint(5)
    history = [{"step": 1, "loss": 2.0, "grad_norm": 1.0}, {"step": 5, **last}]
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 5, "log_history": history}))
    if not is_refused:
        assert export(output, target).manifest.step == 5
        return
    with pytest.raises(DivergedCheckpoint, match=r"checkpoint-5 is of a training that has diverged: \w+ is nan since step 5"):
        export(output, target)
    assert not target.exists()


def test_an_export_that_lost_its_lock_says_so(
    output: Path, target: Path, write_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this process was frozen, another one has taken the lock, and has removed what this one had stored."""
    write_checkpoint(5)
    sync = FileStore.sync

    def freeze(store: FileStore, keys: list[str]) -> None:
        sync(store, keys)
        for key in keys:
            store.delete(key)
        for lock in target.glob(".*.lock"):
            lock.unlink()

    monkeypatch.setattr(FileStore, "sync", freeze)
    with pytest.raises(LockLost, match=r"was removed while the lock was held; try again"):
        export(output, target)
    monkeypatch.setattr(FileStore, "sync", sync)
    assert not export(output, target).existed


def test_an_error_under_a_lock_that_is_held_stays_what_it_is(target: Path) -> None:
    store = FileStore(StorageUri.from_path(target))
    with pytest.raises(NotFound, match=r"nothing does not exist"), store.lock("a"):
        store.read("nothing")
