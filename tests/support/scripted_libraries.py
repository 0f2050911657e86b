"""Modules in the place of transformers, peft, safetensors and trl, as far as the launcher imports them to change what they do.

Imports nothing but the standard library, since it is copied to a folder that pods can read, beside scripted_trainer.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

SECONDS_BETWEEN_REPORTS = 5.0
SCRIPTS = "trl.scripts."


def install(trainer: type, train: Callable[[str], None]) -> None:
    """Put the modules into `sys.modules`: `trainer` is transformers' Trainer, `train` runs the script of TRL of that name."""
    callbacks = SimpleNamespace(TrainerCallback=Callback, PrinterCallback=PrinterCallback)
    reporters = SimpleNamespace(KubeflowCallback=KubeflowCallback)
    _module(
        "transformers", Trainer=trainer, trainer=SimpleNamespace(DEFAULT_CALLBACKS=[PrinterCallback]), trainer_callback=callbacks
    )
    _module("transformers.integrations", integration_utils=reporters)
    _module(
        "peft",
        PeftModel=AdapterModel,
        load_peft_weights=lambda folder, **_: _tensors(safetensors_shapes(Path(folder) / AdapterModel.file)),
        get_peft_model_state_dict=lambda model, **_: _tensors(model.shapes),
        set_peft_model_state_dict=lambda *_, **__: SimpleNamespace(unexpected_keys=[]),
    )
    _module("safetensors", serialize_file=_serialize_file)
    _module("trl", train=train, __path__=[])
    _module("trl.scripts", __path__=[])
    sys.meta_path.insert(0, Scripts())


def _module(name: str, **content: Any) -> None:
    sys.modules[name] = module = ModuleType(name)
    vars(module).update(content)


def _tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    return {name: SimpleNamespace(shape=shape) for name, shape in shapes.items()}


def _serialize_file(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


class Scripts:
    """Finds the modules `trl.scripts.*` and has their code."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self, origin=name) if name.startswith(SCRIPTS) else None

    def get_code(self, name: str) -> CodeType:
        return compile(f"import trl; trl.train({name.removeprefix(SCRIPTS)!r})", name, "exec")


@dataclass
class State:
    """What callbacks see of a training, in the words of transformers."""

    is_world_process_zero: bool
    global_step: int
    max_steps: int
    log_history: list[dict[str, Any]]
    epoch: float
    is_local_process_zero = True


class Model:
    """All weights of the base model."""

    file = "model.safetensors"

    def __init__(self, base: Path, _options: argparse.Namespace):
        self._base, self.shapes = base, safetensors_shapes(base / self.file)

    def write(self, folder: Path) -> None:
        config = json.loads((self._base / "config.json").read_bytes())
        (folder / "config.json").write_text(json.dumps({**config, "use_cache": False}), "utf-8")  # as trainings leave it
        copy(self._base / "generation_config.json", folder)
        _write_weights((self._base / self.file).read_bytes(), folder / self.file)


class AdapterModel:
    """LoRA on all linear layers of the base model but the head, with what load_weights.py asks of a model of peft."""

    file = "adapter_model.safetensors"
    active_adapters = ("default",)

    def __init__(self, base: Path, options: argparse.Namespace):
        self.shapes: dict[str, list[int]] = {}
        layers = []
        for name, shape in sorted(safetensors_shapes(base / Model.file).items()):
            layer = name.removesuffix(".weight")
            if len(shape) == 2 and not layer.endswith(("embed_tokens", "lm_head")):
                layers.append(layer)
                self.shapes[f"base_model.model.{layer}.lora_A.weight"] = [options.lora_r, shape[1]]
                self.shapes[f"base_model.model.{layer}.lora_B.weight"] = [shape[0], options.lora_r]
        kind = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base), "inference_mode": True}
        numbers = {"r": options.lora_r, "lora_alpha": options.lora_alpha, "lora_dropout": options.lora_dropout}
        more = {"bias": "none", "use_rslora": False, "use_dora": False, "target_modules": layers}
        self._config = {**kind, **numbers, **more}
        self.peft_config = {"default": SimpleNamespace(**self._config)}

    def parameters(self) -> list[Any]:
        return []

    def write(self, folder: Path) -> None:
        (folder / "README.md").write_text("---\nlibrary_name: peft\n---\n", "utf-8")
        _write_weights(safetensors(self.shapes), folder / self.file)
        (folder / "adapter_config.json").write_text(json.dumps(self._config), "utf-8")


class Callback:
    """In the place of TrainerCallback."""

    def on_train_begin(self, args: Any, state: State, control: Any) -> None: ...

    def on_step_end(self, args: Any, state: State, control: Any) -> None: ...

    def on_log(self, args: Any, state: State, control: Any, logs: dict[str, Any]) -> None: ...

    def on_train_end(self, args: Any, state: State, control: Any) -> None: ...


class PrinterCallback(Callback):
    """Prints a line for each entry of the history."""

    def on_log(self, args: Any, state: State, control: Any, logs: dict[str, Any]) -> None:
        shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in logs.items()}
        print({name: value for name, value in shown.items() if name != "total_flos"}, flush=True)


class KubeflowCallback(Callback):
    """Reports at the start, every five seconds, and at the end. A report that is not taken is lost, as with transformers."""

    def __init__(self) -> None:
        self._initialized, self._metrics, self._start_time, self._last_update_time = False, dict[str, Any](), 0.0, 0.0

    def on_train_begin(self, args: Any, state: State, control: Any) -> None:
        if state.is_world_process_zero:
            self._initialized, self._start_time = True, time.time()
            self._send({"progressPercentage": 0}, {"total_steps": state.max_steps})

    def on_log(self, args: Any, state: State, control: Any, logs: dict[str, Any]) -> None:
        self._metrics.update(logs)

    def on_step_end(self, args: Any, state: State, control: Any) -> None:
        if self._initialized and time.monotonic() - self._last_update_time >= SECONDS_BETWEEN_REPORTS:
            step, last = state.global_step, state.max_steps
            remaining = int((time.time() - self._start_time) / max(1, step) * (last - step))
            progress = {"progressPercentage": min(99, int(step / last * 100)), "estimatedRemainingSeconds": remaining}
            own = {"current_step": step, "total_steps": last, "current_epoch": round(state.epoch, 2)}
            self._send(progress, {**self._metrics, **own})

    def on_train_end(self, args: Any, state: State, control: Any) -> None:
        if self._initialized:
            self._send({"progressPercentage": 100, "estimatedRemainingSeconds": 0}, self._metrics)

    def _send(self, progress: dict[str, Any], metrics: dict[str, Any]) -> None:
        import ssl  # these take as long to import as all the rest
        import urllib.request
        from datetime import UTC, datetime

        self._last_update_time = time.monotonic()
        url, token, authority = (os.environ.get(f"KUBEFLOW_TRAINER_SERVER_{name}", "") for name in ("URL", "TOKEN", "CA_CERT"))
        told = [{"name": name, "value": str(value)} for name, value in metrics.items()]
        status = {"lastUpdatedTime": datetime.now(UTC).isoformat(), **progress, "metrics": told}
        body = json.dumps({"trainerStatus": status}).encode()
        try:
            headers = {"Authorization": f"Bearer {Path(token).read_text('utf-8').strip()}", "Content-Type": "application/json"}
            request = urllib.request.Request(url, body, headers, method="POST")
            context = ssl.create_default_context(cafile=authority) if authority else None
            urllib.request.urlopen(request, timeout=5, context=context).read()
        except OSError:
            return


def _write_weights(content: bytes, path: Path) -> None:
    library: Any = sys.modules["safetensors"]  # whose function the launcher has replaced
    library.serialize_file(content, path)


def copy(path: Path, folder: Path) -> None:
    """Copy a file that a model may be without."""
    if path.exists():
        shutil.copyfile(path, folder / path.name)


def safetensors_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors of a file, by name."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def safetensors(shapes: Mapping[str, Sequence[int]]) -> bytes:
    """A file of float32 zeros."""
    header, at = dict[str, Any](), 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)
