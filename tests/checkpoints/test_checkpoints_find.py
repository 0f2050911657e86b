"""A checkpoint is whole only when every file that belongs to it is; names prove nothing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainwright.checkpoints.errors import NoCheckpoint
from trainwright.checkpoints.find import find_checkpoints, latest_checkpoint
from trainwright.checkpoints.formats.format import checkpoint_step
from trainwright.checkpoints.formats.hf_trainer import incomplete_reason
from trainwright.storage.errors import StorageError

pytestmark = pytest.mark.medium

CUT_IS_NOTICED = (
    "trainer_state.json",
    "adapter_model.safetensors",
    "adapter_config.json",
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
)


@pytest.mark.parametrize("name", CUT_IS_NOTICED)
def test_a_checkpoint_with_a_file_cut_off_at_any_place_is_never_whole(write_checkpoint: Callable[..., Path], name: str) -> None:
    folder = write_checkpoint(5)
    whole = (folder / name).read_bytes()
    assert incomplete_reason(folder) is None
    for length in range(len(whole)):
        (folder / name).write_bytes(whole[:length])
        assert name in (incomplete_reason(folder) or ""), length
    (folder / name).write_bytes(whole)
    assert incomplete_reason(folder) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(), st.none() | st.floats(allow_nan=False) | st.text() | st.lists(st.integers())),
    st.sampled_from([None, 2]),
    st.data(),
)
def test_a_trainer_state_cut_off_at_any_place_is_never_whole(
    write_checkpoint: Callable[..., Path], state: dict[str, object], indent: int | None, data: st.DataObject
) -> None:
    content = json.dumps({**state, "global_step": 5}, indent=indent, sort_keys=True).encode()
    assert incomplete_reason(write_checkpoint(5, **{"trainer_state.json": content})) is None
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    assert incomplete_reason(write_checkpoint(5, **{"trainer_state.json": cut})) == "trainer_state.json is missing or incomplete"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"trainer_state.json": None}, "trainer_state.json is missing or incomplete"),
        ({"trainer_state.json": b"[]"}, "trainer_state.json is missing or incomplete"),
        ({"trainer_state.json": b"[" * 100_000}, "trainer_state.json is missing or incomplete"),
        ({"trainer_state.json": b'{"global_step": 4}'}, "trainer_state.json is of step 4"),
        ({"trainer_state.json": b"{}"}, "trainer_state.json is of step None"),
        ({"adapter_model.safetensors": None}, "no weights"),
        ({"model.safetensors.index.json": b'{"weight_map": {}}'}, "model.safetensors.index.json is incomplete"),
        ({"rng_state_0.pth": b""}, "rng_state_0.pth is truncated"),
    ],
)
def test_incomplete_reason_names_the_missing_file(
    write_checkpoint: Callable[..., Path], files: dict[str, bytes | None], reason: str
) -> None:
    assert (incomplete_reason(write_checkpoint(5, **files)) or "").startswith(reason)


def test_a_gap_in_the_ranks_random_states_means_that_one_still_writes(write_checkpoint: Callable[..., Path]) -> None:
    folder = write_checkpoint(5)
    rng = (folder / "rng_state.pth").read_bytes()
    for rank in (0, 2, 3):
        (folder / f"rng_state_{rank}.pth").write_bytes(rng)
    assert incomplete_reason(folder) == "rng_state_1.pth is missing"
    (folder / "rng_state_1.pth").write_bytes(rng)
    assert incomplete_reason(folder) is None


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-0", 0),
        ("checkpoint-12", 12),
        ("checkpoint-" + "9" * 200, int("9" * 200)),
        ("checkpoint-007", None),
        ("checkpoint--1", None),
        ("checkpoint-٣", None),
        ("checkpoint-1\n", None),
        ("checkpoint-1.tmp", None),
        ("tmp-checkpoint-1", None),
    ],
)
def test_only_the_trainers_own_names_are_checkpoints(name: str, step: int | None) -> None:
    assert checkpoint_step(Path("/output") / name) == step


def test_checkpoints_come_by_step_and_files_of_that_name_are_none(output: Path, write_checkpoint: Callable[..., Path]) -> None:
    for step in (100, 20, 3):
        write_checkpoint(step)
    write_checkpoint(200, **{"trainer_state.json": None})
    (output / "checkpoint-300").write_bytes(b"")
    assert [(c.step, bool(c.incomplete)) for c in find_checkpoints(output)] == [
        (3, False),
        (20, False),
        (100, False),
        (200, True),
    ]
    assert latest_checkpoint(output).step == 100


def test_where_there_is_none_it_is_said_why(output: Path, write_checkpoint: Callable[..., Path]) -> None:
    assert find_checkpoints(output) == []
    with pytest.raises(NoCheckpoint, match=f"^no complete checkpoint in {output}$"):
        latest_checkpoint(output)
    write_checkpoint(5, **{"trainer_state.json": None})
    with pytest.raises(
        NoCheckpoint, match=r" \(checkpoint-5: trainer_state.json is missing or incomplete; read as hf-trainer\)$"
    ):
        latest_checkpoint(output)


def test_a_folder_that_cannot_be_read_is_an_error_and_not_empty(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output.mkdir()

    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(output))

    monkeypatch.setattr(Path, "iterdir", fail)
    with pytest.raises(StorageError, match=f"{output}: Permission denied"):
        find_checkpoints(output)
