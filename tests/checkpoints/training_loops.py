"""Training loops that save and load with torch's DCP or `torch.save`, accelerate's functions for FSDP, or DeepSpeed's engine.

Batches and dropout come from the rank's random state, so a resumed loop sees the same data only if that state is restored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

RESUMED_SEED = 1000


class Loop(Protocol):
    """A model in training: one step, and saving and loading everything that training needs."""

    def step(self) -> torch.Tensor: ...
    def save(self, output: Path, step: int) -> None: ...
    def load(self, checkpoint: Path) -> int: ...


def train_in_loop(
    mode: str, output: Path, resume: Path | None, steps: int, save_every: int, on_loss: Callable[[int, torch.Tensor], None]
) -> None:
    """Train up to and including step `steps`, from the beginning or the checkpoint `resume`, and save every so many steps."""
    seed = RESUMED_SEED if resume else 0
    torch.manual_seed(seed)
    loop = LOOPS[mode](mode)
    torch.manual_seed(seed + 1 + dist.get_rank())
    first = loop.load(resume) if resume else 0
    for step in range(first + 1, steps + 1):
        on_loss(step, loop.step())
        if step % save_every == 0:
            loop.save(output, step)


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 8))


def batch_loss(model: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    inputs = torch.randn(4, 8)
    return ((model(inputs) - inputs.flip(1)) ** 2).mean()


class TorchLoop:
    """AdamW and a decaying learning rate, on a model of FSDP2 or DDP."""

    def __init__(self, mode: str) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.mode = mode
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        self.model: Any = network()
        if mode.endswith("ddp"):
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        else:
            fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)

    def step(self) -> torch.Tensor:
        loss = batch_loss(self.model)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss


class DcpLoop(TorchLoop):
    """torch's distributed checkpoint `step-N`; every rank adds its random state to it."""

    def states(self) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = get_state_dict(self.model, self.optimizer)
        random = {f"rank-{dist.get_rank()}": torch.get_rng_state()}
        return {"model": model, "optimizer": optimizer, "scheduler": self.scheduler.state_dict(), "random": random}

    def save(self, output: Path, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        states = {**self.states(), "step": step}
        dcp.save(states, checkpoint_id=output / f"step-{step}", use_collectives=self.mode != "dcp-ranks")

    def load(self, checkpoint: Path) -> int:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import set_state_dict

        states = {**self.states(), "step": 0}
        dcp.load(states, checkpoint_id=checkpoint)
        set_state_dict(self.model, self.optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
        self.scheduler.load_state_dict(states["scheduler"])
        torch.set_rng_state(states["random"][f"rank-{dist.get_rank()}"])
        return int(states["step"])


class MarkedLoop(TorchLoop):
    """Files of `torch.save` in a folder of any name, and a marker when all ranks have written."""

    def save(self, output: Path, step: int) -> None:
        folder, rank = output / f"after-{step}-steps", dist.get_rank()
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(torch.get_rng_state(), folder / f"random_state_{rank}.pt")
        if rank == 0:
            states = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
            torch.save(states, folder / "states.pt")
        dist.barrier()
        if rank == 0:
            (folder / "COMPLETE").write_text(json.dumps({"step": step}))

    def load(self, checkpoint: Path) -> int:
        states = torch.load(checkpoint / "states.pt", weights_only=True)
        for name, state in states.items():
            getattr(self, name).load_state_dict(state)
        torch.set_rng_state(torch.load(checkpoint / f"random_state_{dist.get_rank()}.pt", weights_only=True))
        return int(json.loads((checkpoint / "COMPLETE").read_bytes())["step"])


class AccelerateLoop(TorchLoop):
    """`checkpoint-N` as transformers' Trainer writes it with FSDP: accelerate's files, then its own, the state last."""

    def __init__(self, mode: str) -> None:
        from train_for_real import fsdp_parts

        super().__init__(mode)
        self.parts = fsdp_parts("full" if mode == "fsdp-full" else "sharded")
        self.use_dcp = mode != "fsdp-ranks"

    def save(self, output: Path, step: int) -> None:
        from accelerate.utils.fsdp_utils import save_fsdp_model, save_fsdp_optimizer
        from safetensors.torch import save_file
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
        from transformers.trainer_callback import TrainerState

        folder, rank = output / f"checkpoint-{step}", dist.get_rank()
        folder.mkdir(parents=True, exist_ok=True)
        save_fsdp_model(*self.parts, self.model, str(folder), use_dcp=self.use_dcp)
        save_fsdp_optimizer(*self.parts, self.optimizer, self.model, str(folder), use_dcp=self.use_dcp)
        torch.save({"cpu": torch.get_rng_state()}, folder / f"rng_state_{rank}.pth")
        full = get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if rank == 0:
            if self.parts[0].state_dict_type.name == "FULL_STATE_DICT":
                save_file(full, folder / "model.safetensors")
            torch.save(self.scheduler.state_dict(), folder / "scheduler.pt")
            TrainerState(global_step=step).save_to_json(str(folder / "trainer_state.json"))
        dist.barrier()

    def load(self, checkpoint: Path) -> int:
        from accelerate.utils.fsdp_utils import load_fsdp_model, load_fsdp_optimizer
        from transformers.trainer_callback import TrainerState

        load_fsdp_model(*self.parts, self.model, str(checkpoint), use_dcp=self.use_dcp)
        load_fsdp_optimizer(*self.parts, self.optimizer, self.model, str(checkpoint), use_dcp=self.use_dcp)
        self.scheduler.load_state_dict(torch.load(checkpoint / "scheduler.pt", weights_only=True))
        random = torch.load(checkpoint / f"rng_state_{dist.get_rank()}.pth", weights_only=True)
        torch.set_rng_state(random["cpu"])
        return int(TrainerState.load_from_json(str(checkpoint / "trainer_state.json")).global_step)


class DeepSpeedLoop:
    """DeepSpeed's engine without the Trainer: `step-N` with `global_stepN/` and `latest`."""

    def __init__(self, mode: str) -> None:
        import deepspeed

        deepspeed.init_distributed("gloo")
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        config = {
            "train_micro_batch_size_per_gpu": 4,
            "zero_optimization": {"stage": int(mode[-1])},
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
        }
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        self.engine: Any = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=scheduler, config=config)[0]

    def step(self) -> torch.Tensor:
        loss = batch_loss(self.engine)
        self.engine.backward(loss)
        self.engine.step()
        return loss

    def save(self, output: Path, step: int) -> None:
        states: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(states, torch.get_rng_state())
        self.engine.save_checkpoint(str(output / f"step-{step}"), client_state={"step": step, "random": states})

    def load(self, checkpoint: Path) -> int:
        found, client = self.engine.load_checkpoint(str(checkpoint))
        assert found, f"DeepSpeed finds no checkpoint in {checkpoint}"
        torch.set_rng_state(client["random"][dist.get_rank()])
        return int(client["step"])


LOOPS: dict[str, Callable[[str], Loop]] = {
    "dcp-fsdp": DcpLoop,
    "dcp-ddp": DcpLoop,
    "dcp-ranks": DcpLoop,
    "marked-ddp": MarkedLoop,
    "fsdp-sharded": AccelerateLoop,
    "fsdp-full": AccelerateLoop,
    "fsdp-ranks": AccelerateLoop,
    "engine-zero1": DeepSpeedLoop,
    "engine-zero2": DeepSpeedLoop,
    "engine-zero3": DeepSpeedLoop,
}
