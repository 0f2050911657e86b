"""The builtin trainer `torchtune`: `tune run` in Trainer's torchtune runtimes, with the settings of the Kubeflow SDK.

Names and values are those of kubeflow 0.5 (`TorchTuneConfig`, `LoraConfig`, `TorchTuneInstructDataset`), and so are the arguments,
except that the recipe is always told where its rows lie: otherwise it trains on the default dataset of its configuration. Nodes and
resources are part of the request. Trainer selects recipe and configuration.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from trainwright.jobs.trainers.builtin_trainers import OwnProgram, Program, TrainerSettings, WrongField
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import StorageUri

COMMAND = ["tune", "run"]
DATASET = "/workspace/dataset"
INSTRUCT = "torchtune.datasets.instruct_dataset"
Source = Literal["json", "csv", "parquet", "arrow", "text", "xml"]
_SOURCES: dict[str, Source] = {
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "text",
    ".xml": "xml",
}
_GZIP = ".gz"
_TRAIN = "train"
_PREPARED = {"source": "json", "data_files": f"{DATASET}/train.jsonl"}
_PREPARED_COLUMNS = {"input": "prompt", "output": "completion"}
_SOURCE_SETTING = "settings.dataset_preprocess_config.source"
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

    source: Annotated[Source | None, BeforeValidator(_lower)] = None
    split: str = ""
    train_on_input: bool | None = None
    new_system_prompt: str = ""
    column_map: dict[str, str] | None = None

    def given(self) -> dict[str, Any]:
        """Return the settings that are not empty, by torchtune's names."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, "", {})}


class TorchTuneSettings(TrainerSettings):
    """Empty values keep those of the torchtune configuration."""

    dtype: Annotated[Literal["bf16", "fp32"] | None, BeforeValidator(_lower)] = None
    batch_size: _Positive | None = None
    epochs: _Positive | None = None
    loss: str = ""
    """For instance torchtune.modules.loss.CEWithChunkedOutputLoss, or only its last part."""
    peft_config: LoraSettings | None = None
    dataset_preprocess_config: DatasetSettings | None = None

    def arguments(self, dataset_uri: str, own: OwnProgram) -> list[str]:
        """Return the arguments after `tune run`, in the SDK's order. Raises WrongField."""
        loss = self.loss if not self.loss or "." in self.loss else f"torchtune.modules.loss.{self.loss}"
        fields = {"dtype": self.dtype, "batch_size": self.batch_size, "epochs": self.epochs, "loss": loss}
        return [
            *(f"{name}={value}" for name, value in fields.items() if value),
            *(self.peft_config.arguments() if self.peft_config else ()),
            *self._dataset(dataset_uri, own),
        ]

    def _dataset(self, uri: str, own: OwnProgram) -> list[str]:
        """Return the arguments for the rows: where they lie, as the initializer leaves them, and how to read them."""
        given = self.dataset_preprocess_config.given() if self.dataset_preprocess_config else {}
        of_runtime = _dataset_of(own.command)
        if own.prepares_rows:
            if given.get("source", _PREPARED["source"]) != _PREPARED["source"]:
                raise WrongField(_SOURCE_SETTING, f"rows are prepared as {_PREPARED['source']}, whatever the source has; omit it")
            found = {"dataset": INSTRUCT, **_PREPARED, "column_map": _PREPARED_COLUMNS, **given, **_PREPARED}
        elif uri:
            found = {"dataset": INSTRUCT, **_lies_in(uri), **given}
            if "source" not in found and "source" not in of_runtime:
                raise WrongField(_SOURCE_SETTING, f"required, because the format of the files in {uri} is unknown")
            found = {"source": of_runtime.get("source"), **found}
        elif own.fetches_dataset and "data_dir" not in of_runtime and "data_files" not in of_runtime:
            raise WrongField("dataset_uri", "required, because the runtime's command does not say where its dataset lies")
        else:
            found = {**of_runtime, **given}
            if given and "dataset" not in found:
                found = {"dataset": INSTRUCT, **found}
        if not found:
            return []
        # Without a split, the library `datasets` returns all by name instead of rows.
        component, found = found["dataset"], {"split": _TRAIN, **{name: found[name] for name in found if name != "dataset"}}
        return [f"dataset={component}", *(f"dataset.{name}={value}" for name, value in found.items())]


class TorchTuneTrainer:
    """For runtimes such as `torchtune-llama3.2-1b`: one for each model, so the request has to name it."""

    name = "torchtune"
    framework = "torchtune"
    runtime = ""
    rows = frozenset({"prompt-completion"})

    def is_default_for(self, own: OwnProgram) -> bool:
        """Never: without settings, a runtime runs its own recipe."""
        return False

    def program(self, settings: dict[str, Any], dataset_uri: str, own: OwnProgram) -> Program:
        """Return the program with its arguments. Raises WrongField, pydantic's ValidationError."""
        given = TorchTuneSettings.model_validate(settings)
        return Program(list(COMMAND), given.arguments(dataset_uri, own), requires_gpu=True)


def _dataset_of(command: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a runtime's command for its dataset, by the names of `dataset.NAME`; Trainer drops them."""
    found = {}
    for word in command:
        name, equals, value = word.partition("=")
        if equals and (name == "dataset" or name.startswith("dataset.")):
            found[name.removeprefix("dataset.")] = value
    return found


def _lies_in(uri: str) -> dict[str, str]:
    """Return where Trainer's initializer leaves the files of a source, and their format if the name says it.

    Of a repository it fetches everything, and the URI names a folder or a file of it; of a bucket it fetches what is below the
    key, without that, or the one object. Raises WrongField for other sources.
    """
    try:
        parsed = StorageUri.parse(uri)
    except BadUri as error:
        raise WrongField("dataset_uri", str(error)) from None
    if parsed.scheme not in ("hf", "s3"):
        raise WrongField(
            "dataset_uri",
            f"the initializer of the runtime does not fetch {parsed.scheme}://; use hf:// or s3://, or a runtime with an initializer "
            "of Trainwright",
        )
    path = parsed.folder if parsed.scheme == "hf" else parsed.key
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    if suffixes[-1:] == [_GZIP]:
        suffixes.pop()
    source = _SOURCES.get(suffixes[-1]) if suffixes else None  # none for a folder, whose name may have a dot too
    if parsed.scheme == "s3":
        path = posixpath.basename(path) if source else ""
    place = posixpath.join(DATASET, path) if path else DATASET
    return {"source": source, "data_files": place} if source else {"data_dir": place}
