"""The program of an evaluation job: measures how much better a checkpoint predicts rows that it was not trained on.
It evaluates the base model and the fine-tuned one on the same rows and tokens in one process, and writes one JSON file.
It loads weights from safetensors only and trusts no code of a model, so that a checkpoint cannot execute code.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import os
import secrets
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainwright.checkpoints.formats.foreign_settings import foreign_settings_error
from trainwright.evaluation.batches import NO_LABEL, padded
from trainwright.evaluation.encoding import Encoded, digest_of, encode_rows, require_tokens
from trainwright.evaluation.figures import loss_of, named_by_rows, task_name
from trainwright.evaluation.harness import evaluate_tasks
from trainwright.evaluation.preferences import NAMES, Compared, encode_compared, log_probabilities
from trainwright.evaluation.rows import MAX_TRAINING_ROWS, InvalidInput, data_file, is_held_out, read_rows
from trainwright.evaluation.sample import Sample, choose_prompt, encode_sample
from trainwright.tools.errors import ToolError
from trainwright.workspace.errors import WorkspaceError
from trainwright.workspace.receipt import read_receipt
from trainwright.workspace.umask import apply_umask

if TYPE_CHECKING:
    import torch

__all__ = ["InvalidInput", "checkpoint_kind", "evaluate", "main"]

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODEL_CONFIG, CHAT_TEMPLATE = "config.json", "chat_template.jinja"
MODEL_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Evaluate, write the result, and print it in one line.

    Returns the exit status: 0, or 2 with one line on standard error for invalid input.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        apply_umask(os.environ)
        result = evaluate(
            arguments.base,
            arguments.checkpoint,
            arguments.data,
            max_rows=arguments.max_rows,
            sample_row=arguments.sample_row,
            sample_prompt=arguments.sample_prompt,
            max_new_tokens=arguments.max_new_tokens,
            batch_size=arguments.batch_size,
            tasks=arguments.task,
            few_shot=arguments.few_shot,
            task_limit=arguments.task_limit,
        )
    except (InvalidInput, WorkspaceError, ToolError) as error:
        print(f"cannot evaluate: {error}", file=sys.stderr)
        return 2
    write_json(arguments.out, result)
    print(
        f"{'held-out' if result['held_out'] else 'training'} loss {loss_of(result['before']):.3f} -> "
        f"{loss_of(result['after']):.3f} ({result['rows']} rows, {result['tokens']} tokens, {result['seconds']:.1f} s)"
    )
    return 0


def evaluate(
    base: Path,
    checkpoint: Path,
    data: Path,
    *,
    max_rows: int | None = None,
    sample_row: int = 0,
    sample_prompt: str | None = None,
    max_new_tokens: int = 48,
    batch_size: int = 8,
    tasks: Sequence[str] = (),
    few_shot: int = -1,
    task_limit: int = 0,
) -> dict[str, Any]:
    """Evaluate the base model and the fine-tuned one on the same rows.

    base: folder of the base model and its tokenizer. checkpoint: folder of a PEFT adapter or of a full model.
    data: a prepared dataset folder (test.jsonl, else train.jsonl) or a JSON Lines file. max_rows: number of rows to
    evaluate; the default is all held-out rows, or the first 256 rows of train.jsonl.
    sample_row: index (from 0) of the row that both models complete as a sample; sample_prompt: a custom prompt instead.
    max_new_tokens: maximum length of the sample. batch_size: rows per batch. tasks, few_shot,
    task_limit: of lm-evaluation-harness, see `harness.evaluate_tasks`.
    Of answers that are compared, the loss is that of `preferences`, named by loss_of, with preference_accuracy and without perplexity.
    Returns rows, rows_digest (of what was measured), tokens (those with a loss), seconds, device, kind ("adapter" or "model"),
    layout, held_out (False for training rows), before and after (loss in nats per token, perplexity, and TASK/METRIC of each task;
    of training rows they are training_loss, training_perplexity and training_rows/METRIC) and sample (prompt, expected or None,
    before, after).
    Raises InvalidInput for a missing file, a row without a column, a folder without weights or with settings that name code elsewhere,
    a tokenizer without chat template.
    """
    file = data_file(data)
    row_limit = max_rows or (None if is_held_out(file) else MAX_TRAINING_ROWS)
    needed = None if row_limit is None or sample_prompt is not None else max(row_limit, sample_row + 1)
    data_rows = read_rows(file, max_rows=needed)
    prompt = choose_prompt(data_rows, sample_row, sample_prompt)
    kind = checkpoint_kind(checkpoint)
    _require_model(base)
    _refuse_foreign(base, checkpoint)

    started = time.monotonic()
    with pause_garbage_collection():
        import torch
        from transformers import AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
        _use_chat_template(tokenizer, checkpoint)
        require_tokens(tokenizer, data_rows.layout)
        model = _load_model(base, device)
    longest = getattr(model.config, "max_position_embeddings", None)
    measured_rows = replace(data_rows, rows=data_rows.rows[:row_limit])
    compared = encode_compared(tokenizer, measured_rows, limit=longest, batch_size=batch_size) if data_rows.kind else None
    if compared is not None:
        encoded = compared.answers
    else:
        encoded = encode_rows(tokenizer, measured_rows.rows, layout=data_rows.layout, limit=longest)
    if not encoded:
        raise InvalidInput(f"{file}: no row has a token with a loss within the model's {longest} positions")
    sample = encode_sample(tokenizer, prompt)

    of_rows: dict[str, dict[str, float]] = {}
    completions: dict[str, str] = {}
    reference: list[float] = []
    for when in ("before", "after"):
        if when == "after" and kind == "adapter":
            model = _with_adapter(model, checkpoint)
        elif when == "after":
            del model  # free memory for the fine-tuned model
            gc.collect()
            model = _load_model(checkpoint, device)
        if compared is not None:
            found_now = log_probabilities(model, encoded, batch_size=batch_size)
            reference = reference or found_now
            of_rows[when] = compared.figures(reference, found_now)
        else:
            loss = mean_loss(model, encoded, batch_size=batch_size)
            of_rows[when] = {"loss": loss, "perplexity": _perplexity(loss)}
        completions[when] = complete(model, tokenizer, sample, max_new_tokens=max_new_tokens)
        logger.info("%s: loss %.4f over %d rows", when, of_rows[when]["loss"], len(encoded))
    held_out = data_rows.held_out
    measured = {when: named_by_rows(figures, held_out=held_out) for when, figures in of_rows.items()}
    if tasks:
        del model
        gc.collect()
        found = evaluate_tasks(
            base,
            checkpoint,
            kind,
            tasks,
            measured_rows,
            tokenizer,
            few_shot=few_shot,
            limit=task_limit,
            batch_size=batch_size,
        )
        for when, figures in measured.items():
            figures |= {
                f"{task_name(task, held_out=held_out)}/{metric}": value
                for task, values in found[when].items()
                for metric, value in values.items()
            }
    return {
        "base": str(base),
        "checkpoint": str(checkpoint),
        "data": str(file),
        "kind": kind,
        "layout": data_rows.layout,
        "held_out": held_out,
        "device": device,
        "rows": compared.rows if compared is not None else len(encoded),
        "rows_digest": digest_of(encoded, _reference_of(base, compared) if compared is not None else None),
        **({"loss_of": NAMES[compared.kind]} if compared is not None else {}),
        **({"few_shot": few_shot, "task_limit": task_limit} if tasks else {}),
        "tokens": sum(len(row.tokens) - row.first_predicted for row in encoded),
        "seconds": round(time.monotonic() - started, 3),
        **measured,
        "sample": {"prompt": sample.prompt, "expected": sample.expected, **completions},
    }


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
    _require_model(checkpoint)
    return "model"


def mean_loss(model: Any, rows: Sequence[Encoded], *, batch_size: int) -> float:
    """Return the mean cross entropy over all tokens with a loss, in nats per token. All tokens have the same weight."""
    import torch

    total, count = 0.0, 0
    model.eval()
    with torch.inference_mode():
        for tokens, attention, labels in _batches(rows, batch_size):
            logits = model(input_ids=tokens.to(model.device), attention_mask=attention.to(model.device)).logits
            mask = labels[:, 1:] != NO_LABEL
            predicted = logits[:, :-1][mask.to(logits.device)].float()
            targets = labels[:, 1:][mask].to(logits.device)
            total += torch.nn.functional.cross_entropy(predicted, targets, reduction="sum").item()
            count += len(targets)
    return total / count


def complete(model: Any, tokenizer: Any, sample: Sample, *, max_new_tokens: int) -> str:
    """Return the model's completion of a prompt with greedy decoding, up to the end-of-text token."""
    import torch
    from transformers import GenerationConfig

    prompt_ids = torch.tensor([sample.tokens], device=model.device)
    greedy = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=getattr(model.generation_config, "eos_token_id", None) or tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
    )
    with torch.inference_mode():
        generated = model.generate(input_ids=prompt_ids, attention_mask=torch.ones_like(prompt_ids), generation_config=greedy)
    return str(tokenizer.decode(generated[0, prompt_ids.shape[1] :], skip_special_tokens=True)).strip()


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file atomically. Creates its folder if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=2)
            file.write("\n")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Loss on held-out rows and a sample completion, before and after fine-tuning.")
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model and its tokenizer")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of a PEFT adapter or of a full model")
    parser.add_argument("--data", type=Path, required=True, help="prepared dataset folder, or JSON Lines file")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the result")
    parser.add_argument(
        "--max-rows", type=_at_least(1), help="evaluate only the first N rows; default: all, or 256 of train.jsonl"
    )
    sample = parser.add_mutually_exclusive_group()
    sample.add_argument("--sample-row", type=_at_least(0), default=0, help="index (from 0) of the row to complete as a sample")
    sample.add_argument("--sample-prompt", help="custom prompt to complete as a sample")
    parser.add_argument("--max-new-tokens", type=_at_least(1), default=48, help="maximum length of the sample in tokens")
    parser.add_argument("--task", action="append", default=[], help="task of lm-evaluation-harness, or held_out; repeatable")
    parser.add_argument("--few-shot", type=_at_least(-1), default=-1, help="examples in each prompt of a task; -1: as it says")
    parser.add_argument("--task-limit", type=_at_least(0), default=0, help="maximum number of examples of a task; 0: all")
    parser.add_argument("--batch-size", type=_at_least(1), default=8, help="rows per batch")
    return parser


def _at_least(minimum: int) -> Any:
    def parse_integer(text: str) -> int:
        number = int(text)
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{number} is less than {minimum}")
        return number

    return parse_integer


def _require_model(folder: Path) -> None:
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: the folder does not exist")
    if not (folder / MODEL_CONFIG).is_file():
        raise InvalidInput(f"{folder}: has no {MODEL_CONFIG}, so it is not a model folder")
    if not any((folder / name).is_file() for name in MODEL_WEIGHTS):
        raise InvalidInput(f"{folder}: has no weights ({' or '.join(MODEL_WEIGHTS)})")


def _refuse_foreign(*folders: Path) -> None:
    """Raise InvalidInput for a model or an adapter whose settings name code or files elsewhere, before a library reads them."""
    for folder in folders:
        if (problem := foreign_settings_error(folder)) is not None:
            raise InvalidInput(f"{folder}: {problem}")


def _load_model(folder: Path, device: str) -> Any:
    """Load a causal language model from safetensors: in its own precision on a GPU, in float32 on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    dtype = torch.float32 if device == "cpu" else "auto"
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True, trust_remote_code=False)
    return model.to(device)


def _use_chat_template(tokenizer: Any, checkpoint: Path) -> None:
    """Use the checkpoint's chat template if it has one, since it was trained with it."""
    if (checkpoint / CHAT_TEMPLATE).is_file():
        tokenizer.chat_template = (checkpoint / CHAT_TEMPLATE).read_text("utf-8")


def _with_adapter(model: Any, checkpoint: Path) -> Any:
    with pause_garbage_collection():
        from peft import PeftModel

    return PeftModel.from_pretrained(model, str(checkpoint), use_safetensors=True)


def _batches(rows: Sequence[Encoded], size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield token ids, attention mask and labels of up to `size` rows, padded on the right, with shape (rows, longest row).

    Rows are sorted by length to minimize padding.
    """
    ordered = sorted(rows, key=lambda row: len(row.tokens))
    for first in range(0, len(ordered), size):
        yield padded(ordered[first : first + size])


def _reference_of(base: Path, compared: Compared) -> list[object]:
    """Return what a loss of compared answers depends on besides them: the base model, and what a label or a batch makes of them."""
    receipt = read_receipt(base)
    return [receipt.digest if receipt is not None else "", NAMES[compared.kind], compared.labels, compared.batch_size]


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))  # avoids an overflow


def _run() -> NoReturn:
    """Run `main` and exit without interpreter teardown, which takes a second with these imports."""
    status = 1
    try:
        status = main()
    except SystemExit as exit_request:  # argparse: wrong usage, --help
        status = exit_request.code if isinstance(exit_request.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _run()
