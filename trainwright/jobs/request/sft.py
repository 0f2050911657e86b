"""The builtin trainer `sft`: supervised fine-tuning with TRL's script, whose arguments are built from typed settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainwright.jobs.request.builtin_trainers import Program

RUNTIME = "trl-sft"


class SftSettings(BaseModel):
    """Common settings. With `steps` 0 training runs for `epochs`; `extra` arguments are appended unchanged."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

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
        options: dict[str, object] = {
            "num_train_epochs": self.epochs,
            "learning_rate": self.learning_rate,
            "per_device_train_batch_size": self.batch_size,
            "gradient_accumulation_steps": self.gradient_accumulation,
            "max_length": self.max_length,
            "save_steps": self.save_steps,
            "save_total_limit": self.save_total_limit,
            "logging_steps": self.logging_steps,
            "seed": self.seed,
        }
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
        return Program([], given.arguments(), requires_gpu=not given.cpu)
