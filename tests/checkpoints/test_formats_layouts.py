"""Every format accepts its whole layout, and names the file that is missing or cut off."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from checkpoint_files import checkpoint_files, safetensors, torch_file
from format_files import dcp_files, dcp_metadata, sharded_weights, torch_saved, write, zero_files

from trainwright.checkpoints.find import Checkpoint, find_checkpoints
from trainwright.checkpoints.formats import checkpoint_format, deepspeed
from trainwright.checkpoints.formats.deepspeed import DeepSpeedStates

pytestmark = pytest.mark.medium

CONFIG = b'{"model_type": "llama"}'
STATE = b'{"global_step": 5}'
ADAPTER = {"adapter_model.pt": torch_file(b"a"), "adapter_model.safetensors": safetensors(b"a"), "adapter_config.json": b"{}"}
TRAINER = {
    "config.json": CONFIG,
    "trainer_state.json": STATE,
    "scheduler.pt": torch_file(b"s"),
    "rng_state_0.pth": torch_file(b"r"),
    "rng_state_1.pth": torch_file(b"r"),
}
FSDP_FULL = {name: torch_file(b"x") for name in ("pytorch_model_fsdp.bin", "optimizer.bin")}
FSDP_SHARDED = {
    f"{part}_0/{name}": content for part in ("pytorch_model_fsdp", "optimizer") for name, content in dcp_files().items()
}
FSDP_LOCAL = {f"{part}_0_rank{rank}.bin": torch_file(b"x") for part in ("pytorch_model_fsdp", "optimizer") for rank in (0, 1)}
XLA = {f"rank{rank}-of-2-optimizer.pt": torch_file(b"x") for rank in (0, 1)}
ONE_FILE = {"model.safetensors": safetensors(b"w")}
PIPELINE = {
    "global_step5/layer_00-model_00-model_states.pt": torch_saved({}),
    "global_step5/mp_rank_00_model_states.pt": torch_saved({"dp_world_size": 1, "mp_world_size": 2, "lr_scheduler": None}),
    "global_step5/mp_rank_01_model_states.pt": torch_saved({}),
    "latest": b"global_step5\n",
}

LAYOUTS = {
    # folder in the output (empty: the output itself), files, format, step
    "trainer": ("checkpoint-5", checkpoint_files(5), "hf-trainer", 5),
    "trainer, weights alone": ("checkpoint-5", {**ONE_FILE, "trainer_state.json": STATE}, "hf-trainer", 5),
    "trainer, shards": ("checkpoint-5", {**sharded_weights("a", "b"), "trainer_state.json": STATE}, "hf-trainer", 5),
    "trainer, FSDP full": ("checkpoint-5", {**TRAINER, **ONE_FILE, **FSDP_FULL}, "hf-trainer", 5),
    "trainer, FSDP sharded": ("checkpoint-5", {**TRAINER, **FSDP_SHARDED}, "hf-trainer", 5),
    "trainer, FSDP local": ("checkpoint-5", {**TRAINER, **FSDP_LOCAL}, "hf-trainer", 5),
    "trainer, XLA": ("checkpoint-5", {**TRAINER, **ONE_FILE, **XLA}, "hf-trainer", 5),
    "trainer, ZeRO-2": ("checkpoint-5", {**TRAINER, **ONE_FILE, **zero_files(2)}, "hf-trainer", 5),
    "trainer, ZeRO-3": ("checkpoint-5", {**TRAINER, **zero_files(3)}, "hf-trainer", 5),
    "trainer, two adapters": (
        "checkpoint-5",
        {"trainer_state.json": STATE, "other/adapter_model.safetensors": safetensors(b"a"), "other/adapter_config.json": b"{}"},
        "hf-trainer",
        5,
    ),
    "dcp": ("step-5", dcp_files(), "torch-dcp", 5),
    "dcp as checkpoint-N": ("checkpoint-5", dcp_files(), "torch-dcp", 5),
    "dcp without collectives": (
        "step-5",
        {
            **{f"__{rank}_0.distcp": bytes(9) for rank in (0, 1, 2)},
            **{f"__{rank}.metadata": dcp_metadata([(f"__{rank}_0.distcp", 0, 9)]) for rank in (0, 1, 2)},
        },
        "torch-dcp",
        5,
    ),
    "dcp output": ("", dcp_files(), "torch-dcp", 0),
    "ZeRO-1": ("", zero_files(1, data_ranks=4), "deepspeed", 5),
    "ZeRO-1, bf16, tensor parallel": ("", zero_files(1, data_ranks=2, model_ranks=2, prefix="bf16_"), "deepspeed", 5),
    "ZeRO-3": ("", zero_files(3, data_ranks=3), "deepspeed", 5),
    "deepspeed in a folder": ("checkpoint-5", zero_files(2), "deepspeed", 5),
    "deepspeed, pipeline": ("", PIPELINE, "deepspeed", 5),
    "torchtune": (
        "epoch_1",
        {**sharded_weights("a", "b"), "config.json": CONFIG},
        "torchtune",
        1,
    ),
    "torchtune, adapter": (
        "epoch_0",
        {**ADAPTER, "config.json": CONFIG, "recipe_state/recipe_state.pt": torch_file(b"r")},
        "torchtune",
        0,
    ),
    "torchtune, torch files": (
        "step_20",
        {
            **{f"model-0000{number}-of-00002.bin": torch_file(b"w") for number in (1, 2)},
            "pytorch_model.bin.index.json": json.dumps(
                {"weight_map": {"a": "model-00001-of-00002.bin", "b": "model-00002-of-00002.bin"}}
            ).encode(),
            "config.json": CONFIG,
        },
        "torchtune",
        20,
    ),
    "torchtune, Meta's": ("epoch_0", {"model-00001-of-00001.bin": torch_file(b"w"), "params.json": b"{}"}, "torchtune", 0),
    "safetensors": ("step-5", sharded_weights("a", "b", "c"), "safetensors", 5),
    "safetensors with a state": ("step-5", {**sharded_weights("a", "b"), "trainer_state.json": STATE}, "safetensors", 5),
    "final model": ("", {**ONE_FILE, "config.json": CONFIG}, "model", 0),
    "final model with a state": (
        "",
        {**sharded_weights("a", "b"), "config.json": CONFIG, "trainer_state.json": STATE},
        "model",
        5,
    ),
    "final adapter": ("", {"adapter_model.safetensors": safetensors(b"w"), "adapter_config.json": b"{}"}, "model", 0),
    "marked": ("step-5", {"weights.npz": b"x", ".complete": b""}, "marked", 5),
    "marked by a name": ("best", {"model.safetensors": safetensors(b"w"), "COMPLETE": b'{"step": 70}'}, "marked", 70),
    "marked, as checkpoint-N": ("checkpoint-5", {"weights.pt": torch_file(b"x"), ".complete": b'{"step": 5}\n'}, "marked", 5),
}
NOT_NOTICED = {
    "training_args.bin": "not exported, and not needed",
    "nested/ü.txt": "nothing says what it contains",
    "zero_to_fp32.py": "a tool",
    "weights.npz": "a type that only its training code knows",
}
NAMES_NO_FILE = ("no weights: none of", "it has no files but")
MISSING_NOT_NOTICED = {
    **{(layout, "config.json"): "not every model has one" for layout in LAYOUTS if layout.startswith("trainer")},
    ("final model with a state", "trainer_state.json"): "the step is 0 then",
    ("torchtune, adapter", "recipe_state/recipe_state.pt"): "the last epoch has none",
    ("torchtune", "tokenizer.json"): "not every model has one",
    ("safetensors with a state", "trainer_state.json"): "without a Trainer there is none",
    ("deepspeed, pipeline", "global_step5/layer_00-model_00-model_states.pt"): "layers without weights have no file",
}


def made(output: Path, layout: str) -> Checkpoint:
    folder, files, *_ = LAYOUTS[layout]
    write(output / folder, files)
    (found,) = find_checkpoints(output)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_whole_layout_is_found_with_its_format_and_step(output: Path, layout: str) -> None:
    found = made(output, layout)
    assert (found.format, found.step, found.incomplete) == (*LAYOUTS[layout][2:], "")
    assert found.path == (output / LAYOUTS[layout][0])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_that_is_missing_or_cut_off_is_named(output: Path, layout: str) -> None:
    whole = made(output, layout)
    for name, content in LAYOUTS[layout][1].items():
        if name in NOT_NOTICED:
            continue
        for damaged in (None, content[: len(content) // 2], content[:-1] if content.strip() == content else content[:-2]):
            if (damaged is None and (layout, name) in MISSING_NOT_NOTICED) or damaged == content:
                continue
            write(whole.path, {name: damaged})
            reason = whole.incomplete_reason() or ""
            assert Path(name).name in reason or reason.startswith(NAMES_NO_FILE), (name, damaged, reason)
            assert not [each for each in find_checkpoints(output) if not each.incomplete], name
        write(whole.path, {name: content})
    assert whole.incomplete_reason() is None


CASES = [
    ("trainer", {"scheduler.pt": None}, "scheduler.pt is missing"),
    ("trainer", {"optimizer.pt": None}, "optimizer.pt is missing, and there is no other optimizer state"),
    ("trainer", {"rng_state.pth": None}, "rng_state.pth is missing"),
    ("trainer", {"adapter_config.json": None}, "adapter_config.json is missing"),
    ("trainer, FSDP full", {"model.safetensors": None}, "no weights"),
    ("trainer, FSDP full", {"rng_state_1.pth": None}, "rng_state_1.pth is missing"),
    ("trainer, FSDP sharded", {"optimizer_0/.metadata": None}, "optimizer_0/.metadata is missing"),
    (
        "trainer, FSDP sharded",
        {"optimizer_0/.metadata.tmp": b""},
        "optimizer_0/.metadata.tmp exists, so it is still being written",
    ),
    ("trainer, FSDP sharded", {"rng_state_1.pth": None}, "rng_state_1.pth is missing: 2 ranks trained"),
    ("trainer, FSDP local", {"optimizer_0_rank0.bin": None}, "optimizer_0_rank0.bin is missing"),
    ("trainer, ZeRO-2", {"latest": None}, "latest is missing"),
    ("trainer, ZeRO-2", {"scheduler.pt": None}, "scheduler.pt is missing"),
    ("trainer, ZeRO-2", {"model.safetensors": None}, "no weights"),
    ("trainer, ZeRO-2", {"rng_state_1.pth": None}, "rng_state_1.pth is missing: 2 ranks trained"),
    ("dcp", {".metadata": b"cos\nsystem\n."}, "it refers to 'os.system', which is not allowed there"),
    ("dcp", {"__1_0.distcp": bytes(99)}, "__1_0.distcp is truncated: it has 99 bytes, but .metadata lists 100"),
    ("dcp without collectives", {"__1.metadata": None}, "__1.metadata is missing"),
    ("ZeRO-1", {"latest": b"global_step4"}, "latest names 'global_step4', which is not a folder in it"),
    ("ZeRO-1", {"latest": b"../other"}, "latest does not name a folder"),
    ("ZeRO-1", {"latest": b"\xff"}, "latest does not name a folder"),
    (
        "ZeRO-1",
        {"global_step5/zero_pp_rank_3_mp_rank_00_optim_states.pt": None},
        "global_step5/zero_pp_rank_3_mp_rank_00_optim_states.pt is missing: 4 ranks trained",
    ),
    (
        "ZeRO-1, bf16, tensor parallel",
        {"global_step5/bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt": None},
        "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt is missing: 4 ranks trained",
    ),
    (
        "safetensors",
        {"model.safetensors.index.json": None},
        "model.safetensors.index.json is missing: it is written after all shards",
    ),
    ("safetensors with a state", {"trainer_state.json": b'{"global_step": 4}'}, "trainer_state.json is of step 4"),
    ("torchtune", {"config.json": None}, "config.json or params.json is missing"),
    ("torchtune, adapter", {"adapter_config.json": None}, "adapter_config.json is missing"),
    ("torchtune, torch files", {"model-00002-of-00002.bin": None}, "model-00002-of-00002.bin is missing"),
    ("final model", {"config.json": b'{"model_type'}, "config.json is incomplete"),
    ("final model", {"generation_config.json": b"{}", "config.json": None}, "config.json is missing"),
    ("marked", {".complete": b'{"step": 4}'}, ".complete is of step 4"),
    ("marked", {".complete": b'{"step": '}, '.complete is neither empty nor a JSON object such as {"step": 5}'),
    ("marked", {".complete": b"[]"}, ".complete is neither empty nor"),
    ("marked", {"weights.npz": None}, "it has no files but .complete"),
    ("marked, as checkpoint-N", {"weights.pt": torch_file(b"x" * 100)[:60]}, "weights.pt is truncated"),
]


@pytest.mark.parametrize(("layout", "damage", "reason"), CASES)
def test_damaged_layouts_name_the_file(output: Path, layout: str, damage: dict[str, bytes | None], reason: str) -> None:
    found = made(output, layout)
    write(found.path, damage)
    assert reason in (found.incomplete_reason() or "")


def test_torch_files_of_before_zip_are_accepted_where_the_marker_vouches_for_them(output: Path) -> None:
    write(output / "step-5", {"weights.pt": b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", ".complete": b""})
    assert find_checkpoints(output)[0].incomplete == ""


@pytest.mark.parametrize("inner", [torch_file(b"inner"), torch_saved({"a": 1})])
def test_a_cut_that_ends_with_a_zip_file_inside_a_tensor_is_noticed(output: Path, inner: bytes) -> None:
    files = checkpoint_files(5)
    whole = torch_file(b"head" + inner + b"tail")
    cut = whole[: whole.index(inner) + len(inner)]
    found = made(output, "trainer")
    write(found.path, {"optimizer.pt": whole})
    assert found.incomplete_reason() is None
    write(found.path, {"optimizer.pt": cut})
    assert found.incomplete_reason() == "optimizer.pt is truncated or not a zip file of torch.save"
    assert files["optimizer.pt"] != cut


def test_the_ranks_of_deepspeed_come_from_its_files_and_else_from_the_world_size(output: Path) -> None:
    check = checkpoint_format("deepspeed").incomplete_reason
    write(output, zero_files(1, data_ranks=2))
    assert check(output, 5, 8) is None  # the files say 2
    write(output, {"global_step5/mp_rank_00_model_states.pt": torch_saved("no state")})
    assert check(output, 5, None) is None
    assert check(output, 5, 2) is None
    assert "zero_pp_rank_2_mp_rank_00_optim_states.pt is missing: 4 ranks trained" in (check(output, 5, 4) or "")


def test_gathered_weights_of_zero_3_are_expected_where_its_configuration_says_so(output: Path) -> None:
    gathers = {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}
    folder = write(output / "checkpoint-5", {**TRAINER, **zero_files(3, ds_config=gathers)})
    assert (find_checkpoints(output)[0].incomplete).startswith("no weights")
    write(folder, ONE_FILE)
    assert find_checkpoints(output)[0].incomplete == ""


def test_a_zip_directory_is_only_read_if_it_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, zero_files(1))
    states = DeepSpeedStates(tmp_path / "global_step5", tmp_path)
    assert states.parallelism() is not None
    monkeypatch.setattr(deepspeed, "_MAX_DIRECTORY_BYTES", 10)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert states.parallelism() is None
