"""Tasks of lm-evaluation-harness, with the real harness in an environment of its own, on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.optional_packages import require_packages

from trainwright.evaluation import program
from trainwright.evaluation.harness import REQUIREMENTS, write_held_out_task
from trainwright.evaluation.rows import InvalidInput, read_rows
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import ToolFailed, ToolUnavailable

require_packages("torch", "transformers")

pytestmark = [pytest.mark.slow, pytest.mark.wide(part="lm-eval"), pytest.mark.timeout(900)]
ROWS = [{"prompt": f"What is ship {number}?\n", "completion": f"Ship {number}."} for number in range(6)]


@pytest.fixture(scope="module")
def base(tiny_model: Path) -> Path:
    try:
        tool_environment(REQUIREMENTS, name="lm-eval", system_packages=True)
    except ToolUnavailable as error:
        pytest.skip(f"no environment of lm-eval: {error}")
    return tiny_model


def data(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


def test_a_task_is_measured_before_and_after(base: Path, tmp_path: Path) -> None:
    result = program.evaluate(base, base, data(tmp_path, ROWS), tasks=["held_out"], task_limit=4)
    assert result["before"].keys() == {"loss", "perplexity", "held_out/exact_match"}
    assert result["after"] == result["before"], "the same model twice"
    assert 0.0 <= result["after"]["held_out/exact_match"] <= 1.0


def test_an_unknown_task_is_refused_by_its_name(base: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"tasks: no task of lm-evaluation-harness [0-9.]+: no_such_task"):
        program.evaluate(base, base, data(tmp_path, ROWS), tasks=["no_such_task"])


def test_rows_without_completions_have_no_exact_match(base: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    rows = read_rows(data(tmp_path, [{"text": "a ship"}]))
    with pytest.raises(InvalidInput, match="held_out needs prompts with completions, these rows are text"):
        write_held_out_task(tmp_path, rows, AutoTokenizer.from_pretrained(base))


def test_tasks_are_names_and_neither_patterns_nor_files(base: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.yaml").write_text("task: evil\ndoc_to_text: !function evil.run\n", "utf-8")
    tasks = ["*", "arc*", str(tmp_path), str(tmp_path / "evil.yaml"), "../evil.yaml", "hf://org/tasks"]
    with pytest.raises(InvalidInput, match="tasks: no task of lm-evaluation-harness") as raised:
        program.evaluate(base, base, data(tmp_path, ROWS), tasks=tasks)
    assert str(raised.value).endswith(f": {', '.join(tasks)}")


@pytest.fixture
def changed_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`changed_task(**settings)` changes the file of held_out, as if a task of the package had these settings."""

    def change(**settings: Any) -> None:
        def write(folder: Path, rows: Any, tokenizer: Any) -> None:
            write_held_out_task(folder, rows, tokenizer)
            file = folder / "held_out.yaml"
            file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **settings}), "utf-8")

        monkeypatch.setattr("trainwright.evaluation.harness.write_held_out_task", write)

    return change


def test_metrics_that_are_code_of_the_hub_are_refused(base: Path, tmp_path: Path, changed_task: Callable[..., None]) -> None:
    changed_task(metric_list=[{"metric": "rouge", "aggregation": "mean", "higher_is_better": True, "hf_evaluate": True}])
    with pytest.raises(InvalidInput, match="tasks: a task asks for the metric 'rouge', code of the Hugging Face Hub"):
        program.evaluate(base, base, data(tmp_path, ROWS), tasks=["held_out"])


def test_code_that_a_model_writes_is_not_run(base: Path, tmp_path: Path, changed_task: Callable[..., None]) -> None:
    changed_task(unsafe_code=True)
    with pytest.raises(ToolFailed, match="marked as unsafe"):
        program.evaluate(base, base, data(tmp_path, ROWS), tasks=["held_out"])


def test_datasets_that_are_programs_are_not_run(base: Path, tmp_path: Path, changed_task: Callable[..., None]) -> None:
    """Tasks of the package set trust_remote_code for their datasets."""
    repository = tmp_path / "rows"
    repository.mkdir()
    (repository / "rows.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n", "utf-8")
    changed_task(dataset_path=str(repository), dataset_kwargs={"trust_remote_code": True})
    with pytest.raises(ToolFailed):
        program.evaluate(base, base, data(tmp_path, ROWS), tasks=["held_out"])
    assert not (tmp_path / "ran").exists()
