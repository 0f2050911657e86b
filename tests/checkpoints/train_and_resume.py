"""Trains on CPU with several ranks, saves, and resumes; each rank reports its loss of every step. Run by torchrun.

`train_and_resume.py MODE[,MODE...] OUTPUT REPORT [--resume CHECKPOINT] ...` writes checkpoints to the folder OUTPUT and the losses,
as `{step: loss}`, to `REPORT/rank-R.json`. MODE is, for transformers' Trainer, `trainer`, `lora`, `zero2` or `zero3` (the last two
with DeepSpeed), or one or several of those in `training_loops.py`, which get the folder `MODE` in OUTPUT, REPORT and CHECKPOINT.

A resumed run starts from other random seeds, so whatever does not come from the checkpoint shows in the losses.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import Dataset

TRAINER_MODES = ("trainer", "lora", "zero2", "zero3")


class Report:
    """The loss of every step on this rank."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.losses = dict[int, float]()

    def add(self, step: int, loss: torch.Tensor) -> None:
        self.losses[step] = loss.item()

    def write(self) -> None:
        """Needs the process group."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(self.losses))


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Differ from each other, so that the order of the data shows in the losses; seven steps of two ranks."""

    def __len__(self) -> int:
        return 28

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(8) * (index % 5 + 1) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


def end_abruptly() -> None:
    """End as a preempted pod does, when all ranks have arrived here."""
    dist.barrier()
    signal.raise_signal(signal.SIGKILL)


def train_with_trainer(options: argparse.Namespace, report: Report) -> None:
    """With dropout, so that random states show in the losses, and a learning rate that decays."""
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    torch.manual_seed(1000 if options.resume else 0)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32, "max_position_embeddings": 16}
    config = LlamaConfig(num_attention_heads=2, num_key_value_heads=2, attention_dropout=0.2, **size)
    model: Any = LlamaForCausalLM(config)
    if options.mode == "lora":
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)  # the base model is an input of training, and not in its checkpoints
        model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=2, lora_dropout=0.2, target_modules=["q_proj", "v_proj"]))
    more: dict[str, Any] = {}
    if options.mode.startswith("zero"):
        more["deepspeed"] = {
            "zero_optimization": {"stage": int(options.mode[-1])},
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
        }
    arguments = TrainingArguments(
        output_dir=str(options.output),
        max_steps=options.steps,
        save_steps=options.save_every,
        save_total_limit=options.keep,
        logging_steps=1,
        learning_rate=0.01,
        warmup_steps=2,
        per_device_train_batch_size=2,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        **more,
    )

    class Reporting(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
            loss = super().training_step(*args, **kwargs)
            report.add(self.state.global_step + 1, loss)
            time.sleep(options.pause)  # stands for the work of a larger model
            return loss

        def _save_rng_state(self, output_dir: str) -> None:
            if self.args.process_index == self.args.world_size - 1:
                time.sleep(options.delay)
            super()._save_rng_state(output_dir)

    class Interruption(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == options.stop_after:
                end_abruptly()

    trainer = Reporting(model=model, args=arguments, train_dataset=Sentences(), callbacks=[Interruption()])
    trainer.train(resume_from_checkpoint=str(options.resume) if options.resume else None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("output", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--resume", type=Path, help="the folder of the checkpoint to resume from")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--save-every", type=int, default=6)
    parser.add_argument("--stop-after", type=int, help="end by SIGKILL after this step")
    parser.add_argument("--keep", type=int, help="how many checkpoints to keep")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each step takes longer")
    parser.add_argument(
        "--delay", type=float, default=0.0, help="seconds by which the last rank writes its state after the others"
    )
    options = parser.parse_args()
    if options.mode in TRAINER_MODES:
        report = Report(options.report)
        train_with_trainer(options, report)
        report.write()
    else:
        from training_loops import train_in_loop

        for mode in options.mode.split(","):
            report = Report(options.report / mode)
            resume = options.resume / mode if options.resume else None
            train_in_loop(mode, options.output / mode, resume, options.steps, options.save_every, report.add)
            report.write()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
