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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from trainwright.evaluation.encoding import NO_LABEL, Encoded, digest_of, encode_rows, padded, require_tokens
from trainwright.evaluation.figures import loss_of, named_by_rows, task_name
from trainwright.evaluation.harness import evaluate_tasks
from trainwright.evaluation.loading import (
    checkpoint_kind,
    load_model,
    pause_garbage_collection,
    refuse_foreign,
    require_model,
    template_of_answers,
    use_training_tokens,
    with_adapter,
)
from trainwright.evaluation.preferences import NAMES, Compared, encode_compared, log_probabilities
from trainwright.evaluation.rows import MAX_TRAINING_ROWS, MESSAGES, TRAIN, InvalidInput, data_file, is_held_out, read_rows
from trainwright.evaluation.sample import (
    SAMPLES,
    Completion,
    choose_prompt,
    complete,
    encode_sample,
    ended_counts,
    exported_config,
    more_prompts,
    token_limit,
)
from trainwright.initializers.same_rows import rows_in_common
from trainwright.tools.errors import ToolError
from trainwright.workspace.layout import WorkspaceError, apply_umask
from trainwright.workspace.receipt import read_receipt

if TYPE_CHECKING:
    import torch

__all__ = ["InvalidInput", "evaluate", "main"]

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
            loss_on=arguments.loss_on,
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
    loss_on: str = "",
) -> dict[str, Any]:
    """Evaluate the base model and the fine-tuned one on the same rows.

    base: folder of the base model and its tokenizer. checkpoint: folder of a PEFT adapter or of a full model.
    data: a prepared dataset folder (test.jsonl, else train.jsonl) or a JSON Lines file. max_rows: number of rows to
    evaluate; the default is all held-out rows, or the first 256 rows of train.jsonl.
    sample_row: index (from 0) of the row that both models complete as a sample; sample_prompt: a custom prompt instead.
    max_new_tokens: tokens of the sample that are shown. batch_size: rows per batch. tasks, few_shot,
    task_limit: of lm-evaluation-harness, see `harness.evaluate_tasks`. loss_on: `answers` if the training had its loss on the
    assistant's answers of messages.
    Of answers that are compared, the loss is that of `preferences`, named by loss_of, with preference_accuracy and without perplexity.
    Returns rows, rows_digest (of what was measured), tokens (those with a loss), seconds, device, kind ("adapter" or "model"),
    layout, held_out (False for training rows), trained_rows (held-out rows that are trained on, too), before and after (loss in
    nats per token, perplexity, and TASK/METRIC of each task; of training rows they are training_loss, training_perplexity and
    training_rows/METRIC), sample (prompt, expected or None, before, after) and samples (the count of completed rows, max_tokens of
    each, and how many ended, with how many tokens, before and after).
    Raises InvalidInput for a missing file, a row without a column, a folder without weights or with settings that name code elsewhere,
    a tokenizer without chat template.
    """
    file = data_file(data)
    row_limit = max_rows or (None if is_held_out(file) else MAX_TRAINING_ROWS)
    needed = None if row_limit is None or sample_prompt is not None else max(row_limit, sample_row + 1)
    data_rows = read_rows(file, max_rows=needed)
    prompt = choose_prompt(data_rows, sample_row, sample_prompt)
    kind = checkpoint_kind(checkpoint)
    require_model(base)
    refuse_foreign(base, checkpoint)

    started = time.monotonic()
    with pause_garbage_collection():
        import torch
        from transformers import AutoTokenizer

        device = "cuda" if torch.cuda.is_available() else "cpu"
        tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
        use_training_tokens(tokenizer, checkpoint)
        require_tokens(tokenizer, data_rows.layout)
        model = load_model(base, device)
    longest = getattr(model.config, "max_position_embeddings", None)
    measured_rows = replace(data_rows, rows=data_rows.rows[:row_limit])
    compared = encode_compared(tokenizer, measured_rows, limit=longest, batch_size=batch_size) if data_rows.kind else None
    if compared is not None:
        encoded = compared.answers
    else:
        answers = template_of_answers(tokenizer) if loss_on == "answers" and data_rows.layout == MESSAGES else ""
        encoded = encode_rows(tokenizer, measured_rows.rows, layout=data_rows.layout, limit=longest, answers=answers)
    if not encoded:
        raise InvalidInput(f"{file}: no row has a token with a loss within the model's {longest} positions")
    samples = [encode_sample(tokenizer, each) for each in (prompt, *more_prompts(data_rows, sample_row, SAMPLES - 1))]
    most_new = token_limit(samples, tokenizer, max_new_tokens)
    samples = [each for at, each in enumerate(samples) if not at or longest is None or len(each.tokens) + most_new <= longest]

    of_rows: dict[str, dict[str, float]] = {}
    completions: dict[str, list[Completion]] = {}
    reference: list[float] = []
    generation = model.generation_config
    for when in ("before", "after"):
        if when == "after" and kind == "adapter":
            model = with_adapter(model, checkpoint)
        elif when == "after":
            del model  # free memory for the fine-tuned model
            gc.collect()
            model = load_model(checkpoint, device)
        if when == "after":
            generation = exported_config(model, checkpoint, tokenizer)
        if compared is not None:
            found_now = log_probabilities(model, encoded, batch_size=batch_size)
            reference = reference or found_now
            of_rows[when] = compared.figures(reference, found_now)
        else:
            loss = mean_loss(model, encoded, batch_size=batch_size)
            of_rows[when] = {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}  # more would overflow
        completions[when] = complete(
            model, tokenizer, samples, generation, max_new_tokens=most_new, shown=max_new_tokens, batch_size=batch_size
        )
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
        **(
            {"trained_rows": rows_in_common(file.with_name(TRAIN), file, row_limit)}
            if held_out and file.with_name(TRAIN).is_file()
            else {}
        ),
        "rows_digest": digest_of(encoded, _reference_of(base, compared) if compared is not None else None),
        **({"loss_of": NAMES[compared.kind]} if compared is not None else {}),
        **({"few_shot": few_shot, "task_limit": task_limit} if tasks else {}),
        "tokens": sum(len(row.predicted) for row in encoded),
        "seconds": round(time.monotonic() - started, 3),
        **measured,
        "sample": {
            "prompt": samples[0].prompt,
            "expected": samples[0].expected,
            **{when: found[0].text for when, found in completions.items()},
        },
        "samples": {
            "count": len(samples),
            "max_tokens": most_new,
            **{when: ended_counts(found) for when, found in completions.items()},
        },
    }


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
    parser.add_argument("--max-new-tokens", type=_at_least(1), default=48, help="tokens of the sample that are shown")
    parser.add_argument("--loss-on", choices=("answers", "all"), default="", help="what the training learned of messages")
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
