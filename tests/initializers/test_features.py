"""The library `datasets` returns the prepared rows exactly, whatever it would guess from their beginning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.initializers import DatasetOptions, initialize_dataset

Row = dict[str, Any]
USER, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "2024-01-01"}


def call(**arguments: Any) -> Row:
    calls = [{"type": "function", "function": {"name": "f", "arguments": arguments}}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


LONG = [{"messages": [USER, {"role": "assistant", "content": "x" * 60_000}]}] * 200
"""More than the library reads before it decides the types of columns."""
TOOLS = [{"name": "f", "parameters": {"day": {"type": "string"}}}]
ROWS: dict[str, list[Row]] = {
    "dates are texts": [{"prompt": "2024-01-01", "completion": "2024-01-02"}] * 2,
    "arguments keep keys and numbers": [
        {"prompt": [USER], "completion": [call(day="2024-01-01", count=1)]},
        {"prompt": [USER], "completion": [call(count=1.5)]},
        {"prompt": [USER], "completion": [call(count=None, other={"x": [1, "a"]})]},
    ],
    "tools after the first megabytes": [
        *LONG,
        {"messages": [USER, call(x=1), ANSWER], "tools": TOOLS, "chat_template_kwargs": {"thinking": True}},
        {"messages": [USER, ANSWER], "tools": [{"name": "g", "other": 1}], "chat_template_kwargs": {"effort": "high"}},
    ],
    "names of some messages": [{"messages": [USER, ANSWER]}, {"messages": [{**USER, "name": "n"}, ANSWER]}],
    "preferences": [{"prompt": [USER], "chosen": [call(a=1)], "rejected": [ANSWER]}] * 2,
}


@pytest.mark.medium
@pytest.mark.parametrize("name", ROWS)
def test_datasets_returns_the_prepared_rows(name: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "rows").mkdir()
    for split in ("train", "test"):
        lines = (json.dumps(row) + "\n" for row in ROWS[name])
        (tmp_path / "rows" / f"{split}.jsonl").write_text("".join(lines), "utf-8")
    initialize_dataset(f"file://{tmp_path}/rows", tmp_path / "out", DatasetOptions())
    loaded = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    for split in ("train", "test"):
        prepared = [json.loads(line) for line in (tmp_path / "out" / f"{split}.jsonl").read_text("utf-8").splitlines()]
        assert len(prepared) == len(ROWS[name])
        assert list(loaded[split]) == prepared
