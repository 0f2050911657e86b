"""The builtin trainer `torchtune`: `tune run` in Trainer's torchtune runtimes, with the settings of the Kubeflow SDK.

Names, values and resulting arguments are those of kubeflow 0.5 (`TorchTuneConfig`, `LoraConfig`, `TorchTuneInstructDataset`); nodes
and resources are part of the request. Trainer selects recipe and configuration.
"""

from __future__ import annotations

import posixpath
from typing import Annotated, Any, Literal
from urllib.parse import urlparse

from pydantic import BeforeValidator, Field

from trainwright.jobs.trainers.builtin_trainers import Program
from trainwright.jobs.trainers.trainer_settings import TrainerSettings

COMMAND = ["tune", "run"]
DATASET = "/workspace/dataset"
_Positive = Annotated[int, Field(ge=1)]


def _lower(value: Any) -> Any:
    """Accept the upper-case enum names of the SDK."""
    return value.lower() if isinstance(value, str) else value


class LoraSettings(TrainerSettings):
    """LoRA, QLoRA (`quantize_base`) and DoRA (`use_dora`)."""

    apply_lora_to_mlp: bool | None = None
    apply_lora_to_output: bool | None = None
    lora_attn_modules: tuple[Literal["q_proj", "k_proj", "v_proj", "output_proj"], ...] = ("q_proj", "v_proj", "output_proj")
    lora_rank: _Positive | None = None
    lora_alpha: _Positive | None = None
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    quantize_base: bool | None = None
    use_dora: bool | None = None

    def arguments(self) -> list[str]:
        fields = self.model_dump(exclude={"lora_attn_modules"}, exclude_none=True)
        modules = ",".join(self.lora_attn_modules)
        return [f"model.{name}={value}" for name, value in fields.items()] + (
            [f"model.lora_attn_modules=[{modules}]"] if modules else []
        )


class DatasetSettings(TrainerSettings):
    """torchtune's instruct dataset."""

    source: Annotated[Literal["json", "csv", "parquet", "arrow", "text", "xml"] | None, BeforeValidator(_lower)] = None
    split: str = ""
    train_on_input: bool | None = None
    new_system_prompt: str = ""
    column_map: dict[str, str] | None = None

    def arguments(self) -> list[str]:
        fields = {name: value for name, value in self.model_dump().items() if value not in (None, "", {})}
        return ["dataset=torchtune.datasets.instruct_dataset", *(f"dataset.{name}={value}" for name, value in fields.items())]


class TorchTuneSettings(TrainerSettings):
    """Empty values keep those of the torchtune configuration."""

    dtype: Annotated[Literal["bf16", "fp32"] | None, BeforeValidator(_lower)] = None
    batch_size: _Positive | None = None
    epochs: _Positive | None = None
    loss: str = ""
    """For instance torchtune.modules.loss.CEWithChunkedOutputLoss, or only its last part."""
    peft_config: LoraSettings | None = None
    dataset_preprocess_config: DatasetSettings | None = None

    def arguments(self, dataset_uri: str) -> list[str]:
        """Return the arguments after `tune run`, in the SDK's order."""
        loss = self.loss if not self.loss or "." in self.loss else f"torchtune.modules.loss.{self.loss}"
        fields = {"dtype": self.dtype, "batch_size": self.batch_size, "epochs": self.epochs, "loss": loss}
        return [
            *(f"{name}={value}" for name, value in fields.items() if value),
            *_data_of(dataset_uri),
            *(self.peft_config.arguments() if self.peft_config else ()),
            *(self.dataset_preprocess_config.arguments() if self.dataset_preprocess_config else ()),
        ]


class TorchTuneTrainer:
    """For runtimes such as `torchtune-llama3.2-1b`: one for each model, so the request has to name it."""

    name = "torchtune"
    framework = "torchtune"
    runtime = ""
    is_default = False

    def program(self, settings: dict[str, Any], dataset_uri: str) -> Program:
        """Return the program with its arguments. Raises pydantic's ValidationError."""
        given = TorchTuneSettings.model_validate(settings)
        return Program(list(COMMAND), given.arguments(dataset_uri), requires_gpu=True)


def _data_of(uri: str) -> list[str]:
    """Return the argument for the data of a Hub dataset: the folder or file of the repository in its URI."""
    if not uri.startswith("hf://"):
        return []
    parts = urlparse(uri).path.strip("/").split("/")
    path = "/".join(parts[1:]) or "."
    field = "data_files" if path != "." and "." in path else "data_dir"
    return [f"dataset.{field}={posixpath.join(DATASET, path)}"]
