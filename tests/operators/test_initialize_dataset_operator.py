"""The operator hands its options to the preparation: columns, a subset and a split, also as rendered texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from factories import task_context
from support.optional_packages import require_packages

from trainwright import operators

require_packages("airflow")

COLUMNS = {"text": "words"}


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    for name in ("de/train.jsonl", "de/test.jsonl", "en/train.jsonl"):
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_text(f'{{"words": "{name}"}}\n')
    return {
        "task_id": "t",
        "dataset_uri": f"file://{tmp_path}/source",
        "workspace_path": str(tmp_path / "workspace"),
        "test_fraction": "0",
    }


@pytest.mark.parametrize("columns", [COLUMNS, json.dumps(COLUMNS)])
def test_columns_subset_and_split_choose_the_rows(tmp_path: Path, arguments: dict[str, Any], columns: Any) -> None:
    operator = operators.InitializeDatasetOperator(**arguments, columns=columns, subset="de", split="test")
    result = operator.execute(task_context("t"))
    assert (result["train_rows"], result["test_rows"]) == (1, 0)
    [prepared] = (tmp_path / "workspace").glob("datasets/*/train.jsonl")
    assert prepared.read_text() == '{"text": "de/test.jsonl"}\n'
    assert {"columns", "subset", "split"} <= set(operator.template_fields)
