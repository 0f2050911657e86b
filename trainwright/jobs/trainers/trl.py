"""What the builtin trainers share that run a script of TRL: settings that become its arguments, and the command that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from trainwright.jobs.trainers.builtin_trainers import OwnProgram, Program, TrainerSettings, WrongField

FRAMEWORK = "trl"
SCRIPTS = "trl.scripts."
Positive = Annotated[float, Field(gt=0)]
_ON_CPU, _LORA_ON_CPU = 'settings={"cpu": true}', 'settings={"method": "lora", "cpu": true}'
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
"""The option of TRL's scripts for each setting that becomes one as it is."""
_OFF = ("false", "f", "no", "n", "0")
"""Values of a switch, as the parser of transformers reads them."""
_QUANTIZED = ["--load_in_4bit", "--use_bnb_nested_quant", "--dtype", "bfloat16"]
"""QLoRA: weights in 4 bits with quantized constants. TRL computes in the data type of the model, which is float32 by default."""
_CPU = ["--use_cpu", "--bf16", "False", "--activation_checkpointing", "False", "--dataloader_pin_memory", "False"]


class TrlSettings(TrainerSettings):
    """Common settings. With `steps` 0 training runs for `epochs`; `extra` arguments are appended unchanged."""

    model_config = ConfigDict(allow_inf_nan=False)
    has_reference: ClassVar[bool] = False
    texts_of_row: ClassVar[int] = 1
    least_rows: ClassVar[int] = 1
    """The smallest `batch_size`."""
    own_options: ClassVar[dict[str, str]] = {}
    """The option of the trainer's script for each setting that others do not have."""
    other_names: ClassVar = {
        **{option: setting for setting, option in _OPTIONS.items()},
        **{"max_steps": "steps", "max_seq_length": "max_length", "use_cpu": "cpu", "lora_r": "lora_rank", "lr": "learning_rate"},
        **{"load_in_4bit": "method", "use_peft": "method", "torch_dtype": "dtype"},
    }

    method: Literal["lora", "qlora", "full"] = "lora"
    epochs: Positive = 1.0
    steps: Annotated[int, Field(ge=0)] = 0
    learning_rate: Positive = 2e-4
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
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights, as they are trained and, with all of them, exported."""
    cpu: bool = False
    """Train on the CPU, without bfloat16 and activation checkpointing."""
    extra: tuple[str, ...] = ()

    @field_validator("cpu")
    @classmethod
    def _quantized_on_gpu(cls, cpu: bool, info: ValidationInfo) -> bool:
        if cpu and info.data.get("method") == "qlora":
            raise ValueError("the method qlora needs a GPU; use lora to train on the CPU")
        return cpu

    @property
    def has_second_copy(self) -> bool:
        """Whether TRL loads the weights twice."""
        return False

    def start_variables(self) -> dict[str, str]:
        """Return what the init container is to know that prepares the start of the script."""
        return {}

    def arguments(self) -> list[str]:
        """Return the arguments for the script, in addition to those that the runtime sets."""
        options: dict[str, object] = {
            option: getattr(self, setting) for setting, option in {**_OPTIONS, **self.own_options}.items()
        }
        if self.steps:
            options["max_steps"] = self.steps
        if self.eval_strategy != "no":
            options["eval_strategy"] = self.eval_strategy
            options["per_device_eval_batch_size"] = self.batch_size
            if self.eval_strategy == "steps":
                options["eval_steps"] = self.eval_steps
        arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        if self.method != "full":
            rank, alpha = str(self.lora_rank), str(self.lora_alpha)
            arguments += ["--use_peft", "--lora_target_modules", "all-linear", "--lora_r", rank, "--lora_alpha", alpha]
        if self.method == "qlora":
            arguments += _QUANTIZED
        elif self.dtype != TrlSettings.model_fields["dtype"].default:
            arguments += ["--dtype", self.dtype]
        if self.cpu:
            arguments += _CPU
        return [*arguments, *self.own_arguments(), *self.extra]

    def own_arguments(self) -> list[str]:
        """Return further arguments, which only the script of this trainer takes."""
        return []


class TrlTrainer:
    """Runs the script `trl.scripts.NAME` in runtimes whose command runs any script of TRL, such as `trl-NAME`."""

    name: str
    framework = FRAMEWORK
    rows: frozenset[str]
    settings: type[TrlSettings]

    @property
    def runtime(self) -> str:
        """The default runtime."""
        return f"trl-{self.name}"

    @property
    def script(self) -> str:
        return SCRIPTS + self.name

    def is_default_for(self, own: OwnProgram) -> bool:
        """Whether the runtime's command runs this script."""
        return _scripts_in(own.command) == [self.script]

    def program(self, settings: dict[str, Any], dataset_uri: str, own: OwnProgram) -> Program:
        """Return the program with its arguments. Raises WrongField, pydantic's ValidationError."""
        given = self.settings.model_validate(settings)
        without_gpu = _ON_CPU if given.method != "qlora" else _LORA_ON_CPU
        return Program(
            self._command(own.command),
            given.arguments(),
            requires_gpu=not given.cpu,
            without_gpu=without_gpu,
            has_reference=given.has_reference,
            start_variables=given.start_variables(),
        )

    def _command(self, own: Sequence[str]) -> list[str]:
        """Return the runtime's command with this script in the place of another; empty if it is this one. Raises WrongField."""
        scripts = _scripts_in(own)
        if len(scripts) != 1:
            raise WrongField(
                "builtin",
                f"the runtime's command runs no script of TRL ({SCRIPTS}NAME), so that {self.name!r} cannot take its place; use the "
                f"runtime {self.runtime}",
            )
        return [] if scripts == [self.script] else [self.script if word == scripts[0] else word for word in own]


def _scripts_in(command: Sequence[str]) -> list[str]:
    return [word for word in command if word.startswith(SCRIPTS)]


def option_value(words: Sequence[str], name: str) -> str | None:
    """Return the value of the last option of this name among arguments of TRL's scripts, empty for a switch; None without it.

    Their parser takes the beginning of a name for the whole.
    """
    found = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        option, equals, value = word.partition("=")
        if option.startswith("--") and len(option) > 2 and name.startswith(option[2:].replace("-", "_")):
            found = value if equals else "" if following.startswith("--") else following
    return found


def is_switched_on(words: Sequence[str], name: str) -> bool | None:
    """Return whether the last option of this name is on; None without it."""
    value = option_value(words, name)
    return None if value is None else value.lower() not in _OFF
