"""Which files only serve to resume, and what is said where the weights are in these."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from checkpoint_files import checkpoint_files, safetensors, torch_file
from format_files import dcp_files, sharded_weights, write, zero_files

from trainwright.checkpoints.errors import CheckpointError
from trainwright.checkpoints.formats import checkpoint_format, weights_only_files
from trainwright.storage.plain_files import files_below

pytestmark = pytest.mark.medium

STATES = {
    "hf-trainer": (
        "optimizer.pt optimizer.bin optimizer_1.bin optimizer_0_rank3.bin optimizer_0/.metadata optimizer_12/__0_0.distcp "
        "scheduler.pt scaler.pt rng_state.pth rng_state_12.pth latest zero_to_fp32.py global_step5/mp_rank_00_model_states.pt "
        "global_step5/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt rank0-of-8-optimizer.pt"
    ),
    "deepspeed": (
        "latest global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt global_step5/expp_rank_0_mp_rank_00_optim_states.pt "
        "global_step5/offloaded_tensors/rank0/x.swp global_step5/zero_pp_rank_0_mp_rank_00_model_states.pt"
    ),
    "torchtune": "recipe_state/recipe_state.pt recipe_state.pt",
    "safetensors": "optimizer.pt scheduler.pt rng_state_0.pth",
    "model": "optimizer.pt scheduler.pt rng_state.pth",
    "marked": "optimizer.npz optim/x optimizer/shard0 scheduler.json scaler.pt rng_state_0.pth random_states_0.pkl lr_scheduler.pt",
}
WEIGHTS = {
    "hf-trainer": (
        "model.safetensors adapter_model.safetensors config.json trainer_state.json pytorch_model_fsdp_0/.metadata "
        "pytorch_model_fsdp_0/__0_0.distcp pytorch_model_fsdp.bin README.md other/adapter_model.safetensors"
    ),
    "deepspeed": "global_step5/mp_rank_00_model_states.pt global_step5/layer_00-model_00-model_states.pt config.json",
    "torchtune": "model-00001-of-00002.safetensors adapter_model.pt config.json tokenizer.model",
    "torch-dcp": ".metadata __0_0.distcp",
    "safetensors": "model-00001-of-00002.safetensors model.safetensors.index.json trainer_state.json",
    "model": "model.safetensors config.json",
    "marked": ".complete weights.npz model/shard0 config.json",
}


@pytest.mark.parametrize("form", WEIGHTS)
def test_states_and_weights_are_told_apart_by_their_paths(form: str) -> None:
    is_state = checkpoint_format(form).is_training_state
    assert [path for path in STATES.get(form, "").split() if not is_state(PurePosixPath(path))] == []
    assert [path for path in WEIGHTS[form].split() if is_state(PurePosixPath(path))] == []


def kept(form: str, folder: Path) -> list[str]:
    return [path.as_posix() for path in weights_only_files(checkpoint_format(form), folder, files_below(folder))]


@pytest.mark.parametrize(
    ("form", "files", "expected"),
    [
        (
            "hf-trainer",
            checkpoint_files(5),
            "adapter_config.json adapter_model.safetensors nested/ü.txt trainer_state.json training_args.bin",
        ),
        ("deepspeed", zero_files(2), "global_step5/mp_rank_00_model_states.pt zero_to_fp32.py"),
        ("torch-dcp", dcp_files(), ".metadata __0_0.distcp __1_0.distcp"),
        (
            "safetensors",
            {**sharded_weights("a"), "optimizer.pt": torch_file(b"o")},
            "model-00001-of-00001.safetensors model.safetensors.index.json",
        ),
        (
            "torchtune",
            {"adapter_model.safetensors": safetensors(b"a"), "recipe_state/recipe_state.pt": b""},
            "adapter_model.safetensors",
        ),
        ("marked", {"optimizer.npz": b"", "w.npz": b"", ".complete": b""}, ".complete w.npz"),
    ],
    ids=["hf-trainer", "deepspeed", "dcp", "safetensors", "torchtune", "marked"],
)
def test_the_weights_remain(tmp_path: Path, form: str, files: dict[str, bytes], expected: str) -> None:
    assert kept(form, write(tmp_path, files)) == expected.split()


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ("hf-trainer", {**zero_files(3), "config.json": b"{}", "training_args.bin": b""}),
        ("deepspeed", zero_files(3)),
        ("marked", {"optimizer.npz": b""}),
    ],
    ids=["hf-trainer", "deepspeed", "marked"],
)
def test_a_checkpoint_whose_weights_are_in_the_optimizer_states_alone_is_refused(
    tmp_path: Path, form: str, files: dict[str, bytes]
) -> None:
    with pytest.raises(
        CheckpointError, match=f"there are no weights in this {form} checkpoint; with DeepSpeed ZeRO-3, set stage3"
    ):
        kept(form, write(tmp_path, files))


@pytest.mark.parametrize("key", ["optimizer.state.0.exp_avg", "optim.0", "OPTIMIZER.x"])
def test_a_folder_of_dcp_with_optimizer_states_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(CheckpointError, match=rf"contain weights and optimizer states \({key}\)"):
        kept("torch-dcp", write(tmp_path, dcp_files(keys=("model.a", key))))
