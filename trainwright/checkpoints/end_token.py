"""The token that ends the rows of a training that asks for `end_token=auto`: found in the pod, beside the model and the rows.

A chat template is a program of strangers, so that it is rendered in a process without credentials, with limits of time and memory.
The same module is that program: `python -m trainwright.checkpoints.end_token MODEL` prints the token as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.programs import run_in_group
from trainwright.text.chat_templates import is_conversational, turn_end
from trainwright.text.foreign_texts import one_line
from trainwright.text.text_input import read_json
from trainwright.tools.tokenizer_program import limit_tokenizer_process, tokenizer_environment

_ROWS = "train.jsonl"
_MAX_ROW = 256 * 1024 * 1024
_MAX_SECONDS = 120.0
"""Imports of transformers take a few of them."""


def template_end_token(dataset: Path, model: Path) -> str:
    """Return the token with which the model's chat template ends an answer; empty for rows of text, which TRL ends itself.

    Raises CheckpointError if no row can be read, or the template ends answers otherwise.
    """
    path = dataset / _ROWS
    try:
        with open(path, "rb") as lines:
            row = read_json(lines.readline(_MAX_ROW).decode())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"end_token=auto: {path}: the first row cannot be read: {error}") from error
    if not is_conversational(row):  # TRL itself ends rows of text
        return ""
    if token := _found(model):
        return token
    raise CheckpointError(
        "end_token=auto: the chat template ends answers with no special token of the tokenizer; name the token that ends them, as "
        'settings={"end_token": "..."}'
    )


def _found(model: Path) -> str:
    """Run the program. Raises CheckpointError if it does not answer."""
    printed: list[str] = []
    try:
        code = run_in_group(
            [sys.executable, "-P", "-m", "trainwright.checkpoints.end_token", str(model)],
            environment=tokenizer_environment(),
            timeout_seconds=_MAX_SECONDS,
            on_line=lambda line: printed.append(line[:1000]) if line.strip() else None,
        )
    except TimeoutError:
        raise CheckpointError(f"end_token=auto: the chat template of {model} takes more than {_MAX_SECONDS:g} s") from None
    said = one_line(printed[-1].strip()) if printed else "no output"
    if code:
        raise CheckpointError(f"end_token=auto: the tokenizer of {model} cannot be used: {said[:300]}")
    try:
        return str(json.loads(said))
    except ValueError as error:
        raise CheckpointError(f"end_token=auto: the end token of {model} was not found: {said[:300]}") from error


def main() -> None:
    """Print the token as JSON, or end with an error."""
    limit_tokenizer_process(file_bytes=0)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], local_files_only=True, trust_remote_code=False)
    print(json.dumps(turn_end(tokenizer)))


if __name__ == "__main__":
    main()
