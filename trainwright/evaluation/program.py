"""The program that an evaluation job runs: how much better a checkpoint answers rows it was not trained on.
It measures the base model and the fine-tuned one on the same rows, with the same tokens, in one process, and leaves one
JSON file; it reads weights from safetensors only, so a checkpoint cannot bring code along.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NO_LABEL = -100  # what torch's cross entropy leaves out
COLUMNS = ("prompt", "completion")
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MODEL_CONFIG = "config.json"
MODEL_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")

logger = logging.getLogger(__name__)


class BadInput(Exception):
    """A file or folder that cannot be evaluated; the message names it and says what is wrong, in one line."""


@dataclass(frozen=True)
class Encoded:
    """One row as token numbers; the completion is all from `prompt_length` on."""

    tokens: list[int]
    prompt_length: int


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: evaluate, write the result, say it in one line.

    Returns the exit status: 0, or 2 with one line on standard error when an input is not fit to be evaluated.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        result = evaluate(
            arguments.base,
            arguments.checkpoint,
            arguments.data,
            max_rows=arguments.max_rows,
            sample_row=arguments.sample_row,
            sample_prompt=arguments.sample_prompt,
            max_new_tokens=arguments.max_new_tokens,
            batch_size=arguments.batch_size,
        )
    except BadInput as error:
        print(f"cannot evaluate: {error}", file=sys.stderr)
        return 2
    write_json(arguments.out, result)
    print(
        f"held-out loss {result['before']['loss']:.3f} -> {result['after']['loss']:.3f} "
        f"({result['rows']} rows, {result['tokens']} tokens, {result['seconds']:.1f} s)"
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
) -> dict[str, Any]:
    """Measure the base model and the fine-tuned one on the same held-out rows.

    base: folder of the base model and its tokenizer. checkpoint: folder of a PEFT adapter or of a whole model.
    data: JSON Lines with "prompt" and "completion". max_rows: only the first so many rows are measured.
    sample_row: which row of the file (from 0) both models complete as a sample; sample_prompt: a prompt of one's own
    instead. max_new_tokens: of the sample. batch_size: rows at a time.
    Returns rows, tokens (of completions, each with its end-of-text token), seconds, device, kind ("adapter" or "model"),
    before and after (loss in nats per completion token, and perplexity) and sample (prompt, expected or None, before,
    after).
    Raises BadInput for a missing file, a row without a column, a folder without weights.
    """
    rows = read_rows(data)
    prompt, expected = _sample(rows, sample_row, sample_prompt, data)
    kind = checkpoint_kind(checkpoint)
    _require_model(base)

    import torch
    from transformers import AutoTokenizer

    begun = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = _load_model(base, device)
    encoded = encode_rows(tokenizer, rows[:max_rows], limit=getattr(model.config, "max_position_embeddings", None))
    if not encoded:
        raise BadInput(f"{data}: no row fits into the model with any of its completion left")

    losses, completions = {}, {}
    for when in ("before", "after"):
        if when == "after" and kind == "adapter":
            model = _with_adapter(model, checkpoint)
        elif when == "after":
            del model  # the base makes room for the fine-tuned model
            model = _load_model(checkpoint, device)
        losses[when] = completion_loss(model, encoded, batch_size=batch_size)
        completions[when] = complete(model, tokenizer, prompt, max_new_tokens=max_new_tokens)
        logger.info("%s: loss %.4f over %d rows", when, losses[when], len(encoded))
    return {
        "base": str(base),
        "checkpoint": str(checkpoint),
        "data": str(data),
        "kind": kind,
        "device": device,
        "rows": len(encoded),
        "tokens": sum(len(row.tokens) - row.prompt_length for row in encoded),
        "seconds": round(time.monotonic() - begun, 3),
        **{when: {"loss": loss, "perplexity": _perplexity(loss)} for when, loss in losses.items()},
        "sample": {"prompt": prompt, "expected": expected, **completions},
    }


def read_rows(data: Path) -> list[dict[str, str]]:
    """The rows of a JSON Lines file, each cut down to its prompt and completion; blank lines are passed over.

    Raises BadInput for a file that cannot be read or has no rows, and for a row that is no JSON or lacks a column.
    """
    try:
        lines = data.read_text(encoding="utf-8").split("\n")  # splitlines would also cut at U+2028, inside a string
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{data}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    rows = [_parse_row(line, f"{data} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise BadInput(f"{data}: has no rows")
    return rows


def checkpoint_kind(checkpoint: Path) -> str:
    """What a checkpoint folder holds: "adapter" (PEFT, to be put on the base) or "model" (a whole one).

    Raises BadInput when the folder is neither, or has no safetensors weights.
    """
    if not checkpoint.is_dir():
        raise BadInput(f"{checkpoint}: no such folder")
    if (checkpoint / ADAPTER_CONFIG).is_file():
        if not (checkpoint / ADAPTER_WEIGHTS).is_file():
            raise BadInput(f"{checkpoint}: {ADAPTER_CONFIG} is there, but its weights, {ADAPTER_WEIGHTS}, are not")
        return "adapter"
    _require_model(checkpoint)
    return "model"


def encode_rows(tokenizer: Any, rows: Sequence[dict[str, str]], *, limit: int | None = None) -> list[Encoded]:
    """Tokenize rows as TRL's SFT trainer does: prompt and completion as one text, closed by the end-of-text token.

    tokenizer: a Hugging Face tokenizer. limit: longest sequence, tokens; what is beyond it is cut off.
    Returns one Encoded per row that has any of its completion left.
    """
    encoded = []
    for row in rows:
        end = "" if row["completion"].endswith(tokenizer.eos_token) else tokenizer.eos_token
        prompt = tokenizer(row["prompt"])["input_ids"]
        tokens = tokenizer(row["prompt"] + row["completion"] + end)["input_ids"]
        shared = next((at for at, pair in enumerate(zip(prompt, tokens, strict=False)) if pair[0] != pair[1]), len(prompt))
        if len(tokens[:limit]) > shared:
            encoded.append(Encoded(tokens[:limit], shared))
    return encoded


def completion_loss(model: Any, rows: Sequence[Encoded], *, batch_size: int) -> float:
    """Mean cross entropy over all completion tokens of all rows, in nats per token; every token weighs the same."""
    import torch

    total, count = 0.0, 0
    model.eval()
    with torch.inference_mode():
        for tokens, attention, labels in _batches(rows, batch_size):
            logits = model(input_ids=tokens.to(model.device), attention_mask=attention.to(model.device)).logits
            chosen = labels[:, 1:] != NO_LABEL
            predicted = logits[:, :-1][chosen.to(logits.device)].float()
            wanted = labels[:, 1:][chosen].to(logits.device)
            total += torch.nn.functional.cross_entropy(predicted, wanted, reduction="sum").item()
            count += len(wanted)
    return total / count


def complete(model: Any, tokenizer: Any, prompt: str, *, max_new_tokens: int) -> str:
    """What the model writes after a prompt when it always takes the likeliest token; stops at the end of the text."""
    import torch
    from transformers import GenerationConfig

    given = tokenizer(prompt, return_tensors="pt").to(model.device)
    greedy = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=getattr(model.generation_config, "eos_token_id", None) or tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
    )
    with torch.inference_mode():
        written = model.generate(input_ids=given["input_ids"], attention_mask=given["attention_mask"], generation_config=greedy)
    return str(tokenizer.decode(written[0, given["input_ids"].shape[1] :], skip_special_tokens=True)).strip()


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON file so that a reader finds either all of it or nothing; makes the folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, indent=2)
            file.write("\n")
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Held-out completion loss and a sample, before and after fine-tuning.")
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model and its tokenizer")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of a PEFT adapter or of a whole model")
    parser.add_argument("--data", type=Path, required=True, help='JSON Lines of held-out rows, {"prompt", "completion"}')
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the result")
    parser.add_argument("--max-rows", type=_at_least(1), help="measure the first N rows only")
    sample = parser.add_mutually_exclusive_group()
    sample.add_argument("--sample-row", type=_at_least(0), default=0, help="row (from 0) to complete as a sample")
    sample.add_argument("--sample-prompt", help="prompt to complete as a sample instead of a row's")
    parser.add_argument("--max-new-tokens", type=_at_least(1), default=48, help="longest sample, tokens")
    parser.add_argument("--batch-size", type=_at_least(1), default=8, help="rows at a time")
    return parser


def _at_least(least: int) -> Any:
    def whole_number(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is less than {least}")
        return number

    return whole_number


def _parse_row(line: str, where: str) -> dict[str, str]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}: is not JSON: {error.msg}") from error
    if not isinstance(row, dict):
        raise BadInput(f"{where}: is not a JSON object")
    for column in COLUMNS:
        if column not in row:
            raise BadInput(f'{where}: has no column "{column}"')
        if not isinstance(row[column], str):
            raise BadInput(f'{where}: column "{column}" is not text')
    return {column: row[column] for column in COLUMNS}


def _sample(rows: Sequence[dict[str, str]], row: int, prompt: str | None, data: Path) -> tuple[str, str | None]:
    """The prompt to complete and what is expected; for a prompt that is no row's, nothing is known to expect."""
    if prompt is not None:
        return prompt, next((known["completion"] for known in rows if known["prompt"] == prompt), None)
    if row >= len(rows):
        raise BadInput(f"{data}: has {len(rows)} rows, so there is no sample row {row}")
    return rows[row]["prompt"], rows[row]["completion"]


def _require_model(folder: Path) -> None:
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    if not (folder / MODEL_CONFIG).is_file():
        raise BadInput(f"{folder}: has no {MODEL_CONFIG}, so it is no model folder")
    if not any((folder / name).is_file() for name in MODEL_WEIGHTS):
        raise BadInput(f"{folder}: has no weights ({' or '.join(MODEL_WEIGHTS)})")


def _load_model(folder: Path, device: str) -> Any:
    """A causal language model from safetensors: in its own precision on a GPU, in 32 bits on a CPU."""
    import torch
    from transformers import AutoModelForCausalLM

    dtype = torch.float32 if device == "cpu" else "auto"
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True)
    return model.to(device)


def _with_adapter(model: Any, checkpoint: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(model, str(checkpoint), use_safetensors=True)


def _batches(rows: Sequence[Encoded], size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Token numbers, attention mask and labels of up to `size` rows, padded on the right. Each is (rows, longest row).

    Rows of like length go together, so little is computed for padding.
    """
    import torch

    ordered = sorted(rows, key=lambda row: len(row.tokens))
    for first in range(0, len(ordered), size):
        batch = ordered[first : first + size]
        shape = (len(batch), max(len(row.tokens) for row in batch))
        tokens, attention = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
        labels = torch.full(shape, NO_LABEL)
        for index, row in enumerate(batch):
            length = len(row.tokens)
            tokens[index, :length] = torch.tensor(row.tokens)
            attention[index, :length] = 1
            labels[index, row.prompt_length : length] = tokens[index, row.prompt_length : length]
        yield tokens, attention, labels


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))  # beyond it a float overflows


if __name__ == "__main__":
    raise SystemExit(main())
