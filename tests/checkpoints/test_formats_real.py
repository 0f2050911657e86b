"""Checkpoints that the real libraries have written with two ranks: accepted whole, refused when any file of them is missing or cut."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.waiting import eventually
from torchrun import torchrun

from trainwright.checkpoints.errors import CheckpointError, NoCheckpoint
from trainwright.checkpoints.find import Checkpoint, find_checkpoints, latest_checkpoint
from trainwright.checkpoints.formats import checkpoint_format, weights_only_files
from trainwright.checkpoints.formats.whole_files import parse_state
from trainwright.checkpoints.job_record import Writer, record_writer
from trainwright.storage.plain_files import files_below

PROGRAM = Path(__file__).with_name("train_for_real.py")
NOT_NEEDED = ("training_args.bin", "README.md", "zero_to_fp32.py", "zero_to_torch.py")
"""Not needed to load or resume; a cut or missing one is not noticed."""
ABSENCE_UNNOTICED = ("generation_config.json",)
"""Not every model has one."""
DEEPSPEED = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")

pytestmark = [pytest.mark.medium, pytest.mark.timeout(300), pytest.mark.wide(part="formats")]


def started(mode: str, output: Path, ranks: int) -> contextlib.AbstractContextManager[None]:
    """Run the program during the block, and wait for it to succeed."""
    return torchrun(output.with_name(f"{output.name}.log"), ranks, str(PROGRAM), mode, str(output))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`written(mode)`: the output of the program in that mode, run once."""
    base, made = tmp_path_factory.mktemp("real"), dict[str, Path]()

    def run(mode: str) -> Path:
        if mode not in made:
            with started(mode, base / mode, ranks=2):
                pass
            made[mode] = base / mode
        return made[mode]

    return run


def fsdp_checkpoint(trainer: Path, fsdp: Path, kind: str, target: Path) -> Path:
    """A checkpoint of the Trainer as it is with FSDP: its `_save_optimizer_and_scheduler` adds accelerate's files."""
    shutil.copytree(trainer, target)
    (target / "checkpoint-2/optimizer.pt").unlink()
    if kind == "sharded":
        (target / "checkpoint-2/model.safetensors").unlink()
    shutil.copytree(fsdp / kind, target / "checkpoint-2", dirs_exist_ok=True)
    return target


def native(zero: Path, target: Path) -> Path:
    """What DeepSpeed itself has written of a checkpoint of the Trainer, as training code of DeepSpeed alone leaves it."""
    shutil.copytree(zero / "checkpoint-2/global_step2", target / "global_step2")
    shutil.copy(zero / "checkpoint-2/latest", target / "latest")
    return target


@pytest.fixture
def output(request: pytest.FixtureRequest, written: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of a real output. A name of two parts is made of parts of two."""
    name, copy = str(request.param), tmp_path / "output"
    match name.split("/"):
        case ["fsdp", kind]:
            return fsdp_checkpoint(written("trainer"), written("fsdp"), kind, copy)
        case ["native", mode]:
            return native(written(mode), copy)
        case ["final"]:
            shutil.copytree(written("trainer") / "checkpoint-2", copy)
            for path in (*copy.glob("rng_state_*.pth"), copy / "optimizer.pt", copy / "scheduler.pt"):
                path.unlink()
            return copy
        case ["trainer", "lora"]:
            return Path(shutil.copytree(written("trainer").with_name("trainer-lora"), copy))
        case ["dcp", kind]:
            return Path(shutil.copytree(written("dcp") / kind, copy))
        case _:
            return Path(shutil.copytree(written(name), copy))


def only(output: Path) -> Checkpoint:
    (found,) = find_checkpoints(output)
    return found


def damages(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """All ways to damage a file: its new contents, None for a removed one."""
    content = path.read_bytes()
    yield "removed", None
    yield "empty", b""
    yield "half", content[: len(content) // 2]
    yield "cut", content.rstrip()[:-1]


WHOLE = [
    ("trainer", "hf-trainer", 2),
    ("trainer/lora", "hf-trainer", 2),
    ("fsdp/sharded", "hf-trainer", 2),
    ("fsdp/full", "hf-trainer", 2),
    ("dcp/all", "torch-dcp", 7),
    ("dcp/weights", "torch-dcp", 7),
    ("dcp/ranks", "torch-dcp", 7),
    ("dcp/consolidated", "safetensors", 7),
    ("final", "model", 2),
    *(
        pytest.param(name, form, 2, marks=DEEPSPEED)
        for name, form in (
            ("zero2", "hf-trainer"),
            ("zero3", "hf-trainer"),
            ("zero3-gathered", "hf-trainer"),
            ("native/zero2", "deepspeed"),
            ("native/zero3", "deepspeed"),
        )
    ),
]


@pytest.mark.parametrize(("output", "form", "step"), WHOLE, indirect=["output"])
def test_a_real_checkpoint_is_whole_and_no_longer_when_any_of_its_files_is_damaged(output: Path, form: str, step: int) -> None:
    whole = only(output)
    assert (whole.format, whole.step, whole.incomplete) == (form, step, "")
    checked = 0
    for path in files_below(whole.path):
        if path.name in NOT_NEEDED or path.parts[0] == "sharded":  # what was consolidated
            continue
        content = (whole.path / path).read_bytes()
        for kind, damaged in damages(whole.path / path):
            if damaged is None and (path.name in ABSENCE_UNNOTICED or (form == "model" and path.name == "trainer_state.json")):
                continue
            if damaged is None:
                (whole.path / path).unlink()
            else:
                (whole.path / path).write_bytes(damaged)
            assert path.name in (whole.incomplete_reason() or ""), (str(path), kind)
            found = find_checkpoints(output)
            assert not [each for each in found if not each.incomplete], (str(path), kind)
            checked += 1
        (whole.path / path).write_bytes(content)
    assert checked > 10
    assert only(output).incomplete == ""


@pytest.mark.parametrize("output", ["dcp/shards"], indirect=True)
def test_shards_that_were_not_consolidated_do_not_say_whether_all_ranks_have_written(output: Path) -> None:
    assert only(output).incomplete == "model.safetensors.index.json is missing: it is written after all shards"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("trainer", {"config.json", "generation_config.json", "model.safetensors", "trainer_state.json", "training_args.bin"}),
        ("fsdp/full", {"model.safetensors", "pytorch_model_fsdp.bin", "pytorch_model_fsdp_1.bin"}),
        (
            "fsdp/sharded",
            {"pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_1/.metadata"},
        ),
        ("dcp/weights", {".metadata", "__0_0.distcp", "__1_0.distcp"}),
        pytest.param("zero2", {"model.safetensors", "config.json"}, marks=DEEPSPEED),
        pytest.param("zero3-gathered", {"model.safetensors"}, marks=DEEPSPEED),
        pytest.param("native/zero2", {"global_step2/mp_rank_00_model_states.pt"}, marks=DEEPSPEED),
    ],
    indirect=["output"],
)
def test_weights_only_leaves_out_every_state_that_only_resuming_needs(output: Path, expected: set[str]) -> None:
    found = only(output)
    kept = {path.as_posix() for path in weights_only_files(checkpoint_format(found.format), found.path, files_below(found.path))}
    assert expected <= kept
    assert not [name for name in kept if any(word in name for word in ("optim", "sched", "rng", "latest", "zero_to"))]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("dcp/all", r"contain weights and optimizer states \(optimizer\."),
        pytest.param("zero3", "no weights in this hf-trainer checkpoint", marks=DEEPSPEED),
        pytest.param("native/zero3", "no weights in this deepspeed checkpoint", marks=DEEPSPEED),
    ],
    indirect=["output"],
)
def test_weights_that_cannot_be_separated_from_the_states_are_not_exported_alone(output: Path, reason: str) -> None:
    found = only(output)
    with pytest.raises(CheckpointError, match=reason):
        weights_only_files(checkpoint_format(found.format), found.path, files_below(found.path))


@pytest.mark.parametrize("output", ["trainer"], indirect=True)
def test_ranks_are_counted_against_the_world_size_where_it_is_known(output: Path) -> None:
    found = only(output)
    check = checkpoint_format(found.format).incomplete_reason
    assert check(found.path, 2, None) is None
    assert check(found.path, 2, 2) is None
    assert check(found.path, 2, 4) == "rng_state_2.pth is missing: 4 ranks trained"


@pytest.mark.slow
def test_a_checkpoint_is_incomplete_as_long_as_one_rank_is_still_writing(tmp_path: Path) -> None:
    """The first rank has long written `trainer_state.json`, and nothing in the folder tells of a third rank."""
    output = tmp_path / "output"
    output.mkdir()
    record_writer(output, Writer("job", "uid", 3))
    with started("slow-rank", output, ranks=3):
        state = output / "checkpoint-2/trainer_state.json"
        eventually(lambda: state.exists() and parse_state(state.read_bytes()), seconds=120, what="the first rank")
        eventually((output / "checkpoint-2/rng_state_1.pth").exists, seconds=60, what="the second rank")
        reason = "rng_state_2.pth is missing: 3 ranks trained"
        eventually(lambda: only(output).incomplete == reason, seconds=10, what=reason)
        with pytest.raises(NoCheckpoint, match=reason):
            latest_checkpoint(output)
        output.with_name("output.go").write_bytes(b"")
    assert latest_checkpoint(output).world_size == 3
