"""Lets a training with transformers' Trainer start from the weights of an export: fresh optimizer and scheduler, step 0.

The Trainer itself only resumes from checkpoints with their training state. All weights of a model replace the base model that the
program loads; an adapter is loaded into the one that the program has created to train.
It imports nothing from the package, because it runs in the image of the training program; `orderly_exit.py` runs it there.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn

_OPTION = "--model_name_or_path"
_SAME = ("peft_type", "lora_alpha", "use_rslora", "use_dora")
"""Settings of an adapter that change what its weights mean; ranks and layers are compared by the weights themselves."""
_SHOWN = 3
_NO_REFERENCE = (
    "this training compares with a reference model, which would be another one than these weights, and another one again after a "
    "restart; use an export of all weights, or the merged one of an adapter, as model_uri"
)


def install(instructions: str) -> None:
    """Prepare this process for the weights that the JSON file `instructions` names. Raises SystemExit if they cannot be used."""
    with open(instructions, encoding="utf-8") as file:
        weights: dict[str, Any] = json.load(file)
    if weights["kind"] == "model":
        sys.argv[:] = _with_model(sys.argv, weights["folder"], weights["uri"])
    from transformers import Trainer

    trainer: Any = Trainer
    train = trainer.train

    def train_from_weights(self: Any, *arguments: Any, **options: Any) -> Any:
        refuse_reference(self, weights["uri"])
        start_from(self.model, weights)
        return train(self, *arguments, **options)

    trainer.train = train_from_weights


def _with_model(words: list[str], folder: str, uri: str) -> list[str]:
    """Return the command line with the folder as the model."""
    found = list(words)
    for index, word in enumerate(words):
        if word == _OPTION and index + 1 < len(words):
            found[index + 1] = folder
        elif word.startswith(f"{_OPTION}="):
            found[index] = f"{_OPTION}={folder}"
    if found == words:
        _refuse(uri, f"the command has no {_OPTION}, which would name the model to load")
    return found


def refuse_reference(trainer: Any, uri: str) -> None:
    """Raise SystemExit for a trainer of TRL that compares the model with a reference."""
    if hasattr(trainer, "ref_model"):
        _refuse(uri, _NO_REFERENCE)


def start_from(model: Any, weights: dict[str, Any]) -> None:
    """Check that the program trains what was exported, and load an adapter. Raises SystemExit, which says what does not fit."""
    uri, kind = weights["uri"], weights["kind"]
    has_adapter = _has_adapter(model)
    if kind == "model":
        if has_adapter:
            _refuse(uri, "it has all weights of a model, but this run trains an adapter; set method=full, or use it as model_uri")
        print(f"all weights are those of {uri}; training starts at step 0", flush=True)
        return
    if not has_adapter:
        _refuse(uri, "it is an adapter, but this run trains all weights; set method=lora, or start from an export of all weights")
    _load_adapter(model, weights["folder"], uri)
    print(f"the adapter is that of {uri}; training starts at step 0", flush=True)


def _has_adapter(model: Any) -> bool:
    peft: Any = sys.modules.get("peft")  # a program that trains an adapter has imported it
    return peft is not None and isinstance(model, peft.PeftModel)


def _load_adapter(model: Any, folder: str, uri: str) -> None:
    from peft import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict

    name = model.active_adapters[0]
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        _refuse(uri, "DeepSpeed ZeRO-3 has partitioned the parameters, into which an adapter cannot be loaded; use ZeRO-2")
    differences = _settings_that_differ(model.peft_config[name], folder)
    loaded = load_peft_weights(folder, device="cpu")
    own = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)
    differences += _weights_that_differ(
        {key: tuple(value.shape) for key, value in loaded.items()}, {key: tuple(value.shape) for key, value in own.items()}
    )
    if differences:
        _refuse(uri, f"the adapter does not fit the base model and the settings of this run: {'; '.join(differences)}")
    result: Any = set_peft_model_state_dict(model, loaded, adapter_name=name)
    if result.unexpected_keys:
        _refuse(uri, f"the adapter of this run has no {_some(sorted(result.unexpected_keys))}")


def _settings_that_differ(config: Any, folder: str) -> list[str]:
    with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
        exported = json.load(file)
    own = {name: getattr(config, name, None) for name in _SAME}
    own["peft_type"] = getattr(own["peft_type"], "value", own["peft_type"])
    return [
        f"{name} is {exported[name]} there and {own[name]} here"
        for name in _SAME
        if name in exported and exported[name] != own[name]
    ]


def _weights_that_differ(exported: dict[str, tuple[int, ...]], own: dict[str, tuple[int, ...]]) -> list[str]:
    """Name what this run trains and the export does not have, and what both have in different shapes."""
    differences = []
    if missing := sorted(set(own) - set(exported)):
        differences.append(f"the export has no {_some(missing)}")
    if shapes := [
        f"{key} {list(exported[key])}, here {list(own[key])}" for key in sorted(own) if exported.get(key, own[key]) != own[key]
    ]:
        differences.append(f"other shapes (an adapter's rank is lora_rank): {_some(shapes)}")
    return differences


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _refuse(uri: str, reason: str) -> NoReturn:
    raise SystemExit(f"cannot start from the weights of {uri}: {reason}")
