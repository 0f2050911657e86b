"""Evaluates a base model and a checkpoint of it on tasks of lm-evaluation-harness. Runs in the environment of the tool.

Weights are loaded from safetensors only, and tasks are those of the package, by name. Of these, the harness refuses those that execute
the model's code. Metrics that are code of the Hub, in no fixed version, are refused here.
"""

import importlib
import math
from typing import Any


class UnknownTask(ValueError):
    is_bad_input = True


class HubCode(Exception):
    is_bad_input = True


def main(request: dict[str, Any]) -> dict[str, Any]:
    """`base`, `checkpoint`, `kind` (adapter or model), `tasks`, `include_path`, `few_shot` (-1: the task's), `limit`, `batch_size`.

    Returns {"before": {task: {metric: value}}, "after": ..., "version": of the harness}.
    """
    import lm_eval
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=request["include_path"] or None)
    known = set(manager.all_tasks)
    if unknown := [name for name in request["tasks"] if name not in known]:
        raise UnknownTask(f"no task of lm-evaluation-harness {lm_eval.__version__}: {', '.join(unknown)}")
    refused = refuse_hub_code()
    try:
        found = {when: _evaluate(request, manager, when) for when in ("before", "after")}
    except Exception:  # what fails after a refusal fails for it
        if not refused:
            raise
        raise HubCode(refused[0]) from None
    if refused:
        raise HubCode(refused[0])
    return {**found, "version": lm_eval.__version__}


def refuse_hub_code() -> list[str]:
    """Let the library evaluate load nothing. Returns the list of what it has refused: the harness catches the errors."""
    refused: list[str] = []

    def load(path: Any, *_arguments: Any, **_options: Any) -> Any:
        refused.append(
            f"a task asks for the metric {str(path)[:100]!r}, code of the Hugging Face Hub, which is not run here; use other tasks"
        )
        raise HubCode(refused[-1])

    evaluate: Any = importlib.import_module("evaluate")
    evaluate.load = load
    return refused


def _evaluate(request: dict[str, Any], manager: Any, when: str) -> dict[str, dict[str, float]]:
    import lm_eval
    import torch
    from lm_eval.models.huggingface import HFLM

    is_adapter = request["kind"] == "adapter"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = request["base"] if when == "before" or is_adapter else request["checkpoint"]
    model = HFLM(
        pretrained=weights,
        tokenizer=request["base"],
        peft=request["checkpoint"] if when == "after" and is_adapter else None,
        device=device,
        dtype="float32" if device == "cpu" else "auto",
        batch_size=request["batch_size"],
        use_safetensors=True,
        trust_remote_code=False,
    )
    outcome = lm_eval.simple_evaluate(
        model=model,
        tasks=request["tasks"],
        num_fewshot=request["few_shot"] if request["few_shot"] >= 0 else None,
        limit=request["limit"] or None,
        task_manager=manager,
        log_samples=False,
        bootstrap_iters=0,
        random_seed=0,
        numpy_random_seed=1234,
        torch_random_seed=1234,
        fewshot_random_seed=1234,
    )
    found = {name: _numbers(figures) for name, figures in outcome["results"].items()}
    for name, figures in found.items():
        print(f"{when}: {name}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in figures.items()), flush=True)
    return found


def _numbers(figures: dict[str, Any]) -> dict[str, float]:
    """Return the metrics by name: `acc,none` is `acc`, with another filter `exact_match,strict` is `exact_match-strict`."""
    found = {}
    for key, value in figures.items():
        metric, _, chosen = key.partition(",")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or metric.endswith("_stderr")
        ):
            continue
        if metric not in ("sample_len",):
            found[metric if chosen in ("", "none") else f"{metric}-{chosen}"] = float(value)
    return found
