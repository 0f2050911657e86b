"""A model folder has all its weights only when every file that belongs to them is there and whole."""

import json
from pathlib import Path

import pytest

from trainwright.checkpoints.formats.whole_files import INDEX, weights_error

WHOLE = (2).to_bytes(8, "little") + b"{}"
CUT = WHOLE[:-1]


def index(*shards: object) -> bytes:
    return json.dumps({"weight_map": {f"layer.{number}": shard for number, shard in enumerate(shards)}}).encode()


@pytest.mark.parametrize(
    ("files", "damage"),
    [
        ({"model.safetensors": WHOLE}, None),
        ({"adapter_model.safetensors": WHOLE}, None),
        ({INDEX: index("a.safetensors", "b.safetensors"), "a.safetensors": WHOLE, "b.safetensors": WHOLE}, None),
        ({}, "no weights"),
        ({"model.safetensors": CUT}, "model.safetensors: "),
        ({"model.safetensors": b""}, "model.safetensors: "),
        ({"model.safetensors": WHOLE, "adapter_model.safetensors": CUT}, "adapter_model.safetensors: "),
        (
            {INDEX: index("a.safetensors"), "a.safetensors": WHOLE, "adapter_model.safetensors": CUT},
            "adapter_model.safetensors: ",
        ),
        ({INDEX: index("a.safetensors", "b.safetensors"), "a.safetensors": WHOLE}, "b.safetensors: it is missing"),
        ({INDEX: index("a.safetensors"), "a.safetensors": CUT}, "a.safetensors: "),
        ({INDEX: index()}, f"{INDEX} is incomplete"),
        ({INDEX: b""}, f"{INDEX} is incomplete"),
        ({INDEX: b"[]"}, f"{INDEX} is incomplete"),
        ({INDEX: b'{"weight_map": ["a"]}'}, f"{INDEX} is incomplete"),
        ({INDEX: index(1, None, ["a"])}, f"{INDEX} is incomplete"),
        ({INDEX: index("../a.safetensors"), "a.safetensors": WHOLE}, f"{INDEX} is incomplete"),
    ],
)
def test_weights_are_all_there_and_whole(tmp_path: Path, files: dict[str, bytes], damage: str | None) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    found = weights_error(tmp_path)
    assert found is None if damage is None else (found or "").startswith(damage)
