"""The token that ends the rows of a training that asks for `end_token=auto`: found in the pod, beside the model and the rows.

Its tokenizer is read by transformers, which is imported for this alone.
"""

from __future__ import annotations

from pathlib import Path

from trainwright.checkpoints.errors import CheckpointError
from trainwright.text.chat_templates import is_conversational, turn_end
from trainwright.text.json_reader import read_json

_ROWS = "train.jsonl"
_MAX_ROW = 256 * 1024 * 1024


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
    if not is_conversational(row):
        return ""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of any library that reads these files
        raise CheckpointError(f"end_token=auto: the tokenizer of {model} cannot be read: {str(error)[:200]}") from error
    if token := turn_end(tokenizer):
        return token
    raise CheckpointError(
        "end_token=auto: the chat template ends answers with no special token of the tokenizer; name the token that ends them, as "
        'settings={"end_token": "..."}'
    )
