"""The builtin trainer `sft`: supervised fine-tuning with TRL's script, whose arguments are built from typed settings."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from trainwright.jobs.trainers.builtin_trainers import Program
from trainwright.jobs.trainers.trainer_settings import TrainerSettings

RUNTIME = "trl-sft"
_OPTIONS = {
    "epochs": "num_train_epochs",
    "learning_rate": "learning_rate",
    "batch_size": "per_device_train_batch_size",
    "gradient_accumulation": "gradient_accumulation_steps",
    "max_length": "max_length",
    "save_steps": "save_steps",
    "save_total_limit": "save_total_limit",
    "logging_steps": "logging_steps",
    "seed": "seed",
}
"""The option of TRL's script for each setting that becomes one as it is."""
_ON_CPU = 'settings={"cpu": true}'


class SftSettings(TrainerSettings):
    """Common settings. With `steps` 0 training runs for `epochs`; `extra` arguments are appended unchanged."""

    model_config = ConfigDict(allow_inf_nan=False)
    other_names: ClassVar = {
        **{option: setting for setting, option in _OPTIONS.items()},
        **{"max_steps": "steps", "max_seq_length": "max_length", "use_cpu": "cpu", "lora_r": "lora_rank", "lr": "learning_rate"},
    }

    method: Literal["lora", "full"] = "lora"
    epochs: Annotated[float, Field(gt=0)] = 1.0
    steps: Annotated[int, Field(ge=0)] = 0
    learning_rate: Annotated[float, Field(gt=0)] = 2e-4
    batch_size: Annotated[int, Field(ge=1)] = 8
    """Rows per process and step."""
    gradient_accumulation: Annotated[int, Field(ge=1)] = 1
    max_length: Annotated[int, Field(ge=1)] = 1024
    """In tokens; longer rows are truncated."""
    lora_rank: Annotated[int, Field(ge=1)] = 16
    lora_alpha: Annotated[int, Field(ge=1)] = 32
    save_steps: Annotated[int, Field(ge=1)] = 500
    save_total_limit: Annotated[int, Field(ge=1)] = 3
    logging_steps: Annotated[int, Field(ge=1)] = 10
    eval_strategy: Literal["no", "epoch", "steps"] = "no"
    """When to evaluate the held-out rows, which reports `eval_loss`."""
    eval_steps: Annotated[int, Field(ge=1)] = 500
    seed: int = 42
    cpu: bool = False
    """Train on the CPU, without bfloat16 and activation checkpointing."""
    extra: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments for `python -m trl.scripts.sft`, in addition to those that the runtime sets."""
        options: dict[str, object] = {option: getattr(self, setting) for setting, option in _OPTIONS.items()}
        if self.steps:
            options["max_steps"] = self.steps
        if self.eval_strategy != "no":
            options["eval_strategy"] = self.eval_strategy
            options["per_device_eval_batch_size"] = self.batch_size
            if self.eval_strategy == "steps":
                options["eval_steps"] = self.eval_steps
        arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        if self.method == "lora":
            rank, alpha = str(self.lora_rank), str(self.lora_alpha)
            arguments += ["--use_peft", "--lora_target_modules", "all-linear", "--lora_r", rank, "--lora_alpha", alpha]
        if self.cpu:
            arguments += [
                "--use_cpu",
                "--bf16",
                "False",
                "--activation_checkpointing",
                "False",
                "--dataloader_pin_memory",
                "False",
            ]
        return [*arguments, *self.extra]


class SftTrainer:
    """For `trl-sft` and similar runtimes, whose command is TRL's script."""

    name = "sft"
    framework = "trl"
    runtime = RUNTIME
    is_default = True

    def program(self, settings: dict[str, Any], dataset_uri: str) -> Program:
        """Return the program with its arguments. Raises pydantic's ValidationError."""
        given = SftSettings.model_validate(settings)
        return Program([], given.arguments(), requires_gpu=not given.cpu, without_gpu=_ON_CPU)
