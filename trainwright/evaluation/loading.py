"""Loads a base model and what was trained on it, from safetensors only and without code of theirs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainwright.checkpoints.formats.foreign_settings import foreign_settings_error, read_config
from trainwright.evaluation.rows import InvalidInput
from trainwright.text.chat_templates import NoTrainingTemplate, TrlMissing, answer_template

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODEL_CONFIG, CHAT_TEMPLATE, TOKENIZER_CONFIG = "config.json", "chat_template.jinja", "tokenizer_config.json"
MODEL_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")


def checkpoint_kind(checkpoint: Path) -> str:
    """Return the kind of a checkpoint folder: "adapter" (PEFT, for the base model) or "model" (a full one).

    Raises InvalidInput if the folder is neither, or has no safetensors weights.
    """
    if not checkpoint.is_dir():
        raise InvalidInput(f"{checkpoint}: the folder does not exist")
    if (checkpoint / ADAPTER_CONFIG).is_file():
        if not (checkpoint / ADAPTER_WEIGHTS).is_file():
            raise InvalidInput(f"{checkpoint}: has {ADAPTER_CONFIG}, but its weights, {ADAPTER_WEIGHTS}, are missing")
        return "adapter"
    require_model(checkpoint)
    return "model"


def require_model(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: the folder does not exist")
    if not (folder / MODEL_CONFIG).is_file():
        raise InvalidInput(f"{folder}: has no {MODEL_CONFIG}, so it is not a model folder")
    if not any((folder / name).is_file() for name in MODEL_WEIGHTS):
        raise InvalidInput(f"{folder}: has no weights ({' or '.join(MODEL_WEIGHTS)})")


def refuse_foreign(*folders: Path) -> None:
    """Raise InvalidInput for a model or an adapter whose settings name code or files elsewhere, before a library reads them."""
    for folder in folders:
        if (problem := foreign_settings_error(folder)) is not None:
            raise InvalidInput(f"{folder}: {problem}")


def load_model(folder: Path, device: str) -> Any:
    """Load a causal language model from safetensors: in its own precision on a GPU, in float32 on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    dtype = torch.float32 if device == "cpu" else "auto"
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    return model.to(device)


def use_training_tokens(tokenizer: Any, checkpoint: Path) -> None:
    """Use the checkpoint's chat template and end token if it has them, since it was trained with them."""
    if (checkpoint / CHAT_TEMPLATE).is_file():
        tokenizer.chat_template = (checkpoint / CHAT_TEMPLATE).read_text("utf-8")
    if (checkpoint / TOKENIZER_CONFIG).is_file():
        try:
            end = read_config(checkpoint, TOKENIZER_CONFIG).get("eos_token")
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{checkpoint}: {error}") from error
        end = end.get("content") if isinstance(end, dict) else end
        if isinstance(end, str) and end in tokenizer.get_vocab():  # otherwise the base model could not be measured with it
            tokenizer.eos_token = end


def template_of_answers(tokenizer: Any) -> str:
    try:
        return answer_template(tokenizer.chat_template)
    except (NoTrainingTemplate, TrlMissing) as error:
        raise InvalidInput(f"{tokenizer.name_or_path}: loss_on=answers: {error}") from error


def with_adapter(model: Any, checkpoint: Path) -> Any:
    with pause_garbage_collection():
        from peft import PeftModel

    return PeftModel.from_pretrained(model, str(checkpoint), use_safetensors=True)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause garbage collection: imports of torch and transformers create a million objects and little garbage. Saves a second."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
