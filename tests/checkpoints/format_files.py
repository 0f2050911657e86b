"""Files of checkpoint formats, built without torch: pickles of its classes by name, in the layouts of the real libraries."""

from __future__ import annotations

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from checkpoint_files import safetensors

_DCP = "torch.distributed.checkpoint"


def write(folder: Path, files: Mapping[str, bytes | None]) -> Path:
    """Write files below a folder; None removes one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return folder


def torch_saved(value: object) -> bytes:
    """What torch.save writes for a value without tensors."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def dcp_metadata(entries: Iterable[tuple[str, int, int]], keys: Iterable[str] = ("model.weight",)) -> bytes:
    """A `.metadata` with one storage entry for each (file, offset, length)."""
    metadata, filesystem = ModuleType(f"{_DCP}.metadata"), ModuleType(f"{_DCP}.filesystem")
    made = {
        name: type(name, (), {"__module__": metadata.__name__}) for name in ("Metadata", "MetadataIndex", "BytesStorageMetadata")
    }
    made["_StorageInfo"] = type("_StorageInfo", (), {"__module__": filesystem.__name__})
    for name, each in made.items():
        setattr(filesystem if name == "_StorageInfo" else metadata, name, each)
    storage = {}
    for number, (file, offset, length) in enumerate(entries):
        index, info = made["MetadataIndex"](), made["_StorageInfo"]()
        vars(index).update(fqn=f"value{number}", offset=None, index=None)
        vars(info).update(relative_path=file, offset=offset, length=length)
        storage[index] = info
    whole = made["Metadata"]()
    vars(whole).update(
        state_dict_metadata={key: made["BytesStorageMetadata"]() for key in keys},
        planner_data={key: tuple(key.split(".")) for key in keys},
        storage_data=storage,
        version="1.0.0",
    )
    parents = {name: ModuleType(name) for name in ("torch", "torch.distributed", _DCP)}
    with patch.dict(sys.modules, {**parents, metadata.__name__: metadata, filesystem.__name__: filesystem}):
        return pickle.dumps(whole)


def dcp_files(ranks: int = 2, keys: Iterable[str] = ("model.weight",)) -> dict[str, bytes]:
    """A DCP folder with one shard of 100 bytes for each rank."""
    shards = {f"__{rank}_0.distcp": bytes(100) for rank in range(ranks)}
    entries = [entry for name in shards for entry in ((name, 0, 60), (name, 60, 40))]
    return {**shards, ".metadata": dcp_metadata(entries, keys)}


def zero_files(
    stage: int, data_ranks: int = 2, model_ranks: int = 1, *, step: int = 5, prefix: str = "", **more: object
) -> dict[str, bytes]:
    """DeepSpeed's `latest` and `global_stepN`, as 0.19 writes them for ZeRO. `more` is added to the model states."""
    state = {
        "dp_world_size": data_ranks,
        "mp_world_size": model_ranks,
        "param_shapes": [],
        "lr_scheduler": None,
        "ds_config": {},
        **more,
    }
    folder, content = f"global_step{step}", torch_saved(state)
    grid = [(data, model) for data in range(data_ranks) for model in range(model_ranks)]
    files = {f"{folder}/{prefix}zero_pp_rank_{data}_mp_rank_{model:02d}_optim_states.pt": torch_saved({}) for data, model in grid}
    if stage == 3:
        files |= {f"{folder}/zero_pp_rank_{data}_mp_rank_{model:02d}_model_states.pt": content for data, model in grid}
    else:
        files |= {f"{folder}/mp_rank_{model:02d}_model_states.pt": content for model in range(model_ranks)}
    return {**files, "latest": folder.encode(), "zero_to_fp32.py": b"print()"}


def sharded_weights(*tensors: str) -> dict[str, bytes]:
    """One safetensors shard for each tensor, and the index."""
    names = [f"model-{number:05}-of-{len(tensors):05}.safetensors" for number in range(1, len(tensors) + 1)]
    index = json.dumps({"metadata": {}, "weight_map": dict(zip(tensors, names, strict=True))}).encode()
    return {**{name: safetensors(name.encode()) for name in names}, "model.safetensors.index.json": index}
