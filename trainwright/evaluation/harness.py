"""Evaluates a base model and its checkpoint on tasks of lm-evaluation-harness, in the harness's own environment.

A task of our own, `held_out`, asks for the completions of the held-out rows and counts exact matches.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainwright.evaluation.encoding import render
from trainwright.evaluation.figures import HELD_OUT_TASK
from trainwright.evaluation.rows import InvalidInput, RowSet
from trainwright.evaluation.sample import Prompt, choose_prompt
from trainwright.tools.environment import tool_environment
from trainwright.tools.errors import BadToolInput
from trainwright.tools.run_tool import run_tool

REQUIREMENTS = ("lm-eval>=0.4.9,<0.5", "datasets>=4")
"""torch, transformers and peft are those of this environment. Before version 4, datasets runs scripts of dataset repositories."""
_VARIABLES = ("HF_*", "TRANSFORMERS_*", "TOKENIZERS_*", "CUDA_*", "TORCH*", "PYTORCH_*")
_MAX_COMPLETION = 256
log = logging.getLogger(__name__)


def evaluate_tasks(
    base: Path,
    checkpoint: Path,
    kind: str,
    tasks: Sequence[str],
    rows: RowSet,
    tokenizer: Any,
    *,
    few_shot: int = -1,
    limit: int = 0,
    batch_size: int = 8,
) -> dict[str, Any]:
    """Return the metrics of each task before and after: {"before": {TASK: {METRIC: value}}, "after": ..., "version": ...}.

    Args:
        base: Folder of the base model.
        checkpoint: Folder of the adapter or the full model.
        kind: adapter or model.
        tasks: Names of the harness's tasks, groups or tags, or held_out.
        rows: The rows of held_out.
        tokenizer: That of the model.
        few_shot: Examples in each prompt; -1: as the task says.
        limit: Maximum number of examples of each task; 0: all.
        batch_size: Requests at once.

    Raises InvalidInput for unknown tasks and those that run code of the Hub, ToolError if the harness cannot be installed or fails.
    """
    python = tool_environment(REQUIREMENTS, name="lm-eval", system_packages=True)
    with tempfile.TemporaryDirectory(prefix="tw-tasks-") as folder:
        if HELD_OUT_TASK in tasks:
            write_held_out_task(Path(folder), rows, tokenizer)
        request = {
            "base": str(base),
            "checkpoint": str(checkpoint),
            "kind": kind,
            "tasks": list(tasks),
            "include_path": folder,
            "few_shot": few_shot,
            "limit": limit,
            "batch_size": batch_size,
        }
        try:
            return run_tool("lm_eval_tasks", request, python=python, variables=_VARIABLES, on_line=log.info)
        except BadToolInput as error:
            raise InvalidInput(f"tasks: {error}") from None


def write_held_out_task(folder: Path, rows: RowSet, tokenizer: Any) -> None:
    """Write the task's file, and its prompts with the expected completions, to a folder. Raises InvalidInput if the rows have none."""
    prompts = [choose_prompt(rows, number, None) for number in range(len(rows.rows))]
    asked = [(_text(prompt, tokenizer), prompt.expected.strip()) for prompt in prompts if prompt.expected]
    if not asked:
        raise InvalidInput(f"{rows.path}: tasks: {HELD_OUT_TASK} needs prompts with completions, these rows are {rows.layout}")
    data = folder / "held_out.jsonl"
    data.write_text("".join(json.dumps({"prompt": prompt, "completion": wanted}) + "\n" for prompt, wanted in asked), "utf-8")
    longest = max(len(tokenizer(wanted)["input_ids"]) for _, wanted in asked)
    stripped = {"name": "none", "filter": [{"function": "remove_whitespace"}, {"function": "take_first"}]}
    task = {
        "task": HELD_OUT_TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{prompt}}",
        "doc_to_target": "{{completion}}",
        "target_delimiter": "",
        "generation_kwargs": {"until": [], "max_gen_toks": min(longest + 8, _MAX_COMPLETION), "do_sample": False},
        "filter_list": [stripped],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1},
    }
    (folder / f"{HELD_OUT_TASK}.yaml").write_text(json.dumps(task), "utf-8")


def _text(prompt: Prompt, tokenizer: Any) -> str:
    if prompt.messages is None:
        return prompt.text
    tokens = render(tokenizer, prompt.messages, prompt.options, add_generation_prompt=True)
    return str(tokenizer.decode(tokens, skip_special_tokens=False))
