"""Writes real checkpoints with transformers, accelerate and torch on CPU. Run by torchrun with two ranks.

Usage: `train_for_real.py MODE OUTPUT`; MODE is `trainer` (whose adapter is in `OUTPUT-lora`), `fsdp`, `dcp`, or `zero2`, `zero3`,
`zero3-gathered` (DeepSpeed).
With `slow-rank` the last rank writes nothing to its checkpoint until the file `OUTPUT.go` exists.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Dataset


class Rows(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(8) + index % 3
        return {"input_ids": tokens, "labels": tokens}


def train(mode: str, output: Path) -> None:
    """Two steps of transformers' Trainer: `checkpoint-2`."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32, "max_position_embeddings": 16}
    model: Any = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, num_key_value_heads=2, **size))
    more: dict[str, Any] = {}
    if mode == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    if mode.startswith("zero"):
        zero = {"stage": int(mode[4]), "stage3_gather_16bit_weights_on_model_save": mode.endswith("gathered")}
        more["deepspeed"] = {
            "zero_optimization": zero,
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
        }
    arguments = TrainingArguments(
        output_dir=str(output), max_steps=2, save_steps=2, per_device_train_batch_size=2, use_cpu=True, report_to=[], **more
    )

    class Waiting(Trainer):
        def _save_rng_state(self, output_dir: str) -> None:
            while self.args.process_index == self.args.world_size - 1 and not output.with_name(f"{output.name}.go").exists():
                time.sleep(0.05)
            super()._save_rng_state(output_dir)

    kind = Waiting if mode == "slow-rank" else Trainer
    kind(model=model, args=arguments, train_dataset=Rows()).train()


def sharded_model() -> tuple[Any, Any]:
    """A model of FSDP2 with its optimizer, after one step."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    return model, optimizer


def fsdp_parts(kind: str) -> tuple[Any, Any]:
    """The plugin and the Accelerator that accelerate's functions for FSDP ask for; `kind` is `sharded` or `full`."""
    from accelerate import PartialState
    from torch.distributed.fsdp import StateDictType

    process = PartialState(cpu=True)
    # accelerate accepts FSDP on accelerators only, so its functions get what they read of an Accelerator.
    accelerator = SimpleNamespace(
        num_processes=dist.get_world_size(),
        process_index=dist.get_rank(),
        is_main_process=dist.get_rank() == 0,
        is_fsdp2=True,
        wait_for_everyone=process.wait_for_everyone,
    )
    state = SimpleNamespace(offload_to_cpu=False, rank0_only=False)
    plugin = SimpleNamespace(
        state_dict_type=StateDictType[f"{kind.upper()}_STATE_DICT"],
        fsdp_version=2,
        state_dict_config=state,
        optim_state_dict_config=state,
    )
    return plugin, accelerator


def save_fsdp(output: Path) -> None:
    """What accelerate adds to a checkpoint of the Trainer: `sharded/` and `full/`, each with two models and optimizers."""
    from accelerate import PartialState
    from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer

    PartialState(cpu=True)
    model, optimizer = sharded_model()
    for kind in ("sharded", "full"):
        plugin, accelerator = fsdp_parts(kind)
        for number in (0, 1):
            save_fsdp_model(plugin, accelerator, model, str(output / kind), number)
            save_fsdp_optimizer(plugin, accelerator, optimizer, model, str(output / kind), number)
    dist.barrier()


def save_dcp(output: Path) -> None:
    """torch's distributed checkpoint: with and without optimizer, and as safetensors with and without consolidation."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict import get_state_dict

    dist.init_process_group("gloo")
    weights, states = get_state_dict(*sharded_model())
    dcp.save({"model": weights, "optimizer": states, "step": 7}, checkpoint_id=output / "all" / "step-7")
    dcp.save({"model": weights}, checkpoint_id=output / "weights" / "step-7")
    dcp.save({"model": weights}, checkpoint_id=output / "ranks" / "step-7", use_collectives=False)
    files = {key: 1 + index % 2 for index, key in enumerate(weights)}
    for name, more in (("consolidated", {"fqn_to_index_mapping": files, "enable_consolidation": True}), ("shards", {})):
        writer = HuggingFaceStorageWriter(str(output / name / "step-7"), save_distributed=True, **more)  # type: ignore[arg-type]
        dcp.save(dict(weights), storage_writer=writer)
    dist.barrier()


def main(mode: str, output: Path) -> None:
    if mode == "fsdp":
        save_fsdp(output)
    elif mode == "dcp":
        save_dcp(output)
    else:
        train(mode, output)
    if mode == "trainer":
        train("lora", output.with_name(f"{output.name}-lora"))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
