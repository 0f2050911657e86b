"""Which folders are checkpoints, of which format, and what is said where none is complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_files import checkpoint_files, safetensors, torch_file
from format_files import dcp_files, sharded_weights, write, zero_files

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import find_checkpoints, latest_checkpoint
from trainwright.checkpoints.formats import checkpoint_format, checkpoint_formats
from trainwright.checkpoints.pin import pin_checkpoint
from trainwright.storage.errors import StorageError

pytestmark = pytest.mark.medium

FINAL = {"config.json": b"{}", "model.safetensors": safetensors(b"w")}


def found(output: Path) -> list[tuple[str, str, int, bool]]:
    return [(each.path.name, each.format, each.step, not each.incomplete) for each in find_checkpoints(output)]


def test_formats_of_several_kinds_lie_side_by_side_in_the_order_of_their_steps(output: Path) -> None:
    write(output / "checkpoint-30", checkpoint_files(30))
    write(output / "step-20", dcp_files())
    write(output / "step-10", sharded_weights("a", "b"))
    write(output / "best", {"x.npz": b"x", ".complete": b'{"step": 25}'})
    write(output / "runs", {"events": b"x"})
    write(output / "tokenizer", {"tokenizer.json": b"{}", "config.json": b"{}"})
    write(output, {"step-40": b"a file", "README.md": b""})
    assert found(output) == [
        ("step-10", "safetensors", 10, True),
        ("step-20", "torch-dcp", 20, True),
        ("best", "marked", 25, True),
        ("checkpoint-30", "hf-trainer", 30, True),
    ]
    assert latest_checkpoint(output).step == 30
    assert [each.step for each in find_checkpoints(output, formats=("torch-dcp", "safetensors"))] == [10, 20]


@pytest.mark.parametrize(
    ("files", "form"),
    [(FINAL, "model"), (dcp_files(), "torch-dcp"), (zero_files(2), "deepspeed"), ({"w.npz": b"", "COMPLETE": b""}, "marked")],
    ids=["model", "dcp", "deepspeed", "marked"],
)
def test_the_output_itself_is_a_checkpoint_only_where_none_is_in_it(output: Path, files: dict[str, bytes], form: str) -> None:
    write(output, files)
    assert [(each.path, each.format, each.incomplete) for each in find_checkpoints(output)] == [(output, form, "")]
    write(output / "checkpoint-5", {"trainer_state.json": b""})
    assert found(output) == [("checkpoint-5", "hf-trainer", 5, False)]


@pytest.mark.parametrize(
    "files",
    [
        {"model.safetensors": safetensors(b"w"), "config.json": b"{}"},
        sharded_weights("a", "b"),
        {**zero_files(3), "config.json": b"{}"},
        {**zero_files(2), "training_args.bin": b""},
        {},
    ],
    ids=["one file", "shards", "ZeRO-3", "ZeRO-2", "empty"],
)
def test_a_checkpoint_that_the_trainer_has_begun_is_of_no_other_format(output: Path, files: dict[str, bytes]) -> None:
    write(output / "checkpoint-5", files)
    (begun,) = find_checkpoints(output)
    assert (begun.format, begun.incomplete) == ("hf-trainer", "trainer_state.json is missing or incomplete")


@pytest.mark.parametrize(
    "files", [{**dcp_files(), "__1_0.distcp": b""}, {**zero_files(2), "latest": b"other"}], ids=["dcp", "zero"]
)
def test_a_marker_does_not_replace_the_checks_of_states_that_are_known(output: Path, files: dict[str, bytes]) -> None:
    write(output / "best", {**files, ".complete": b""})
    (only,) = find_checkpoints(output)
    assert only.format == "marked"
    assert any(name in only.incomplete for name in ("__1_0.distcp is truncated", "latest names 'other'"))


def test_ranks_that_only_a_file_name_claims_take_no_time(output: Path) -> None:
    huge = "9" * 60
    for step, (files, name) in enumerate(
        [
            (zero_files(2), f"global_step5/zero_pp_rank_{huge}_mp_rank_00_optim_states.pt"),
            (zero_files(2), f"global_step5/mp_rank_{huge}_model_states.pt"),
            ({}, f"__{huge}.metadata"),
            ({"model-00001-of-00001.bin": torch_file(b"")}, f"model-00001-of-{huge}.bin"),
            (checkpoint_files(4), f"rank0-of-{huge}-optimizer.pt"),
            (checkpoint_files(5), f"optimizer_0_rank{huge}.bin"),
            (checkpoint_files(6), f"rng_state_{huge}.pth"),
        ]
    ):
        write(output / f"{'epoch_' if step == 3 else 'checkpoint-'}{step}", {**files, name: torch_file(b"")})
    found = find_checkpoints(output)
    assert len(found) == 7
    assert all("is missing" in each.incomplete for each in found), [each.incomplete for each in found]


def test_a_marker_does_not_replace_the_checks_of_the_trainer(output: Path) -> None:
    write(output / "checkpoint-5", {**checkpoint_files(5), ".complete": b"", "optimizer.pt": b""})
    (only,) = find_checkpoints(output)
    assert (only.format, only.incomplete) == ("hf-trainer", "optimizer.pt is truncated or not a zip file of torch.save")


@pytest.mark.parametrize("marker", ["checkpoint-5-unfinished", "checkpoint-5/5-unfinished"])
@pytest.mark.parametrize("files", [checkpoint_files(5), dcp_files(), {"x": b"", ".complete": b""}], ids=["hf", "dcp", "marked"])
def test_the_negative_marker_beside_or_inside_makes_any_format_incomplete(
    output: Path, files: dict[str, bytes], marker: str
) -> None:
    write(output / "checkpoint-5", files)
    assert find_checkpoints(output)[0].incomplete == ""
    write(output, {marker: b""})
    assert find_checkpoints(output)[0].incomplete.endswith("so it is still being written")
    (output / marker).unlink()
    assert find_checkpoints(output)[0].incomplete == ""


@pytest.mark.parametrize("marked", [".complete", "COMPLETE"])
@pytest.mark.parametrize(
    ("name", "content", "step"),
    [
        ("step-7", b"", 7),
        ("step-7", b'{"step": 7}', 7),
        ("best", b'{"step": 7, "loss": 0.5}', 7),
        ("best", b"", 0),
        ("best", b'{"step": true}', 0),
        ("best", b'{"step": -7}', 0),
    ],
)
def test_the_step_of_a_marked_folder_is_in_its_name_or_else_in_the_marker(
    output: Path, marked: str, name: str, content: bytes, step: int
) -> None:
    write(output / name, {"x.npz": b"x", marked: content})
    assert find_checkpoints(output)[0].step == step


def test_links_are_no_checkpoints_and_a_linked_file_gives_its_reason(output: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {**dcp_files(), ".complete": b"{}", "latest": b"global_step5"})
    output.mkdir()
    for name in ("step-5", "best", "checkpoint-5"):
        (output / name).symlink_to(outside)
    assert find_checkpoints(output) == []
    write(output / "step-6", dcp_files())
    (output / "step-6/__1_0.distcp").unlink()
    (output / "step-6/__1_0.distcp").symlink_to(outside / "__1_0.distcp")
    write(output / "best-2", {"x": b""})
    (output / "best-2/.complete").symlink_to(outside / ".complete")
    write(output / "step-7", zero_files(2))
    (output / "step-7/latest").unlink()
    (output / "step-7/latest").symlink_to(outside / "latest")
    reasons = {each.path.name: each.incomplete for each in find_checkpoints(output)}
    assert set(reasons) == {"step-6", "best-2", "step-7"}
    assert all("outside of" in reason for reason in reasons.values()), reasons


def test_named_pipes_are_not_waited_for(output: Path) -> None:
    write(output / "step-6", dcp_files())
    (output / "step-6/.metadata").unlink()
    os.mkfifo(output / "step-6/.metadata")
    assert "a named pipe" in find_checkpoints(output)[0].incomplete


def test_a_folder_that_cannot_be_read_matters_only_if_it_is_named_like_a_checkpoint(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(output / "checkpoint-5", checkpoint_files(5))
    write(output / "lost+found", {"x": b""})
    real = Path.exists

    def exists(path: Path) -> bool:
        if path.parent.name in denied:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "exists", exists)
    denied = ["lost+found"]
    assert [each.step for each in find_checkpoints(output)] == [5]
    denied = ["checkpoint-5"]
    with pytest.raises(StorageError, match="Permission denied"):
        find_checkpoints(output)


class TestNoCheckpoint:
    @pytest.mark.parametrize("make", [lambda _output: None, Path.mkdir, lambda output: write(output, {".hidden": b""})])
    def test_a_missing_or_empty_folder_is_said_shortly(self, output: Path, make: Callable[[Path], object]) -> None:
        make(output)
        with pytest.raises(NoCheckpoint, match=f"^no complete checkpoint in {output}$"):
            latest_checkpoint(output)

    def test_incomplete_checkpoints_are_listed_newest_first(self, output: Path) -> None:
        write(output / "checkpoint-5", {"trainer_state.json": b"{"})
        write(output / "step-7", {**dcp_files(), "__1_0.distcp": b""})
        with pytest.raises(NoCheckpoint) as raised:
            latest_checkpoint(output)
        assert str(raised.value) == (
            f"no complete checkpoint in {output} (step-7: __1_0.distcp is truncated: it has 0 bytes, but .metadata lists 100; "
            "checkpoint-5: trainer_state.json is missing or incomplete; read as hf-trainer, torch-dcp)"
        )

    def test_only_some_of_many_are_named(self, output: Path) -> None:
        for step in range(20):
            write(output / f"checkpoint-{step}", {"trainer_state.json": b""})
        with pytest.raises(NoCheckpoint, match=r"checkpoint-19: .* checkpoint-15: .*; 15 more; read as hf-trainer") as raised:
            latest_checkpoint(output)
        assert "checkpoint-14" not in str(raised.value)

    def test_where_nothing_looks_like_one_it_is_said_what_was_looked_for(self, output: Path) -> None:
        write(output, {"weights.npz": b"x"})
        with pytest.raises(NoCheckpoint) as raised:
            latest_checkpoint(output)
        assert str(raised.value).startswith(f"no complete checkpoint in {output}; looked for marked: a folder with .complete")
        for known in checkpoint_formats():
            assert f"{known.name}: " in str(raised.value)


def test_a_format_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(CheckpointError, match=r"format 'hf' is not known; known are: marked, torch-dcp, .*hf-trainer"):
        checkpoint_format("hf")
    assert [checkpoint_format(each.name) for each in checkpoint_formats()] == list(checkpoint_formats())


class TestPin:
    """The pinned copy has another name and lies elsewhere: it is checked as what it was found as."""

    @pytest.mark.parametrize(
        ("name", "files"),
        [
            ("step-5", dcp_files()),
            ("checkpoint-5", zero_files(2)),
            ("epoch_5", {**sharded_weights("a", "b"), "config.json": b"{}"}),
            ("best", {"x": b"x", ".complete": b""}),
        ],
    )
    def test_a_pinned_copy_is_checked_by_the_format_of_the_checkpoint(
        self, output: Path, name: str, files: dict[str, bytes]
    ) -> None:
        write(output / name, files)
        checkpoint = latest_checkpoint(output)
        with pin_checkpoint(checkpoint) as folder:
            assert folder != checkpoint.path
            assert (folder / next(iter(files))).read_bytes() == next(iter(files.values()))
        write(output / name, {next(iter(files)): None})
        with pytest.raises(CheckpointError, match=r"was removed or changed during the export: "), pin_checkpoint(checkpoint):
            pytest.fail("a damaged checkpoint was pinned")

    def test_the_output_itself_can_be_pinned(self, output: Path) -> None:
        write(output, FINAL)
        with pin_checkpoint(latest_checkpoint(output)) as folder:
            assert sorted(path.name for path in folder.iterdir()) == sorted(FINAL)
