"""The verdict on a prepared dataset: what its figures say about the model that comes out, each with its severity and a way out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from trainwright.initializers.data_report.figures import Finding, Measured, SplitFigures, TokenFigures

_WARN_SHARE, _REFUSE_SHARE = 0.05, 0.5
_TRAIN_SPLIT, _HELD_OUT_SPLIT = "train", "test"
NEVER_STOPS = "never_stops"


def findings(
    splits: Mapping[str, SplitFigures], overlap: int, found: Measured, *, model: str, max_length: int, is_imitated: bool
) -> Iterator[Finding]:
    """Yield what is found, the worst first.

    Args:
        splits: The figures of each split.
        overlap: Held-out rows that are trained on, too.
        found: What the tokenizer makes of the rows.
        model: The model of the tokenizer.
        max_length: Tokens of a row in the training; 0 if it is not known.
        is_imitated: Whether the rows are for `sft`, which can train with another end token.
    """
    tokens = splits[_TRAIN_SPLIT].tokens
    if found.missing or tokens is None:
        text = f"whether answers are cut, and whether the model learns to stop: {found.missing or 'no tokens were counted'}"
        yield Finding("not checked", "answers", text)
    else:
        yield from _of_lengths(tokens, max_length)
        yield from _of_the_end(tokens, found, model, is_imitated=is_imitated)
    if overlap:
        rows = splits[_HELD_OUT_SPLIT].rows
        text = (
            f"{overlap:,} of {rows:,} held-out rows are trained on, too (case and white space aside): figures on them are too good; "
            "drop_overlap among the settings of the data leaves them out of the training"
        )
        yield Finding("warning" if overlap >= _WARN_SHARE * rows else "note", "overlap", text)


def _of_lengths(tokens: TokenFigures, max_length: int) -> Iterator[Finding]:
    if not max_length:
        yield Finding("not checked", "cut_answers", "whether answers are cut: max_length of the training is not known")
    elif tokens.cut_answers >= _WARN_SHARE * tokens.counted:
        text = (
            f"{tokens.cut_answers:,} of {tokens.counted:,} rows have more than max_length={max_length:,} tokens and lose the end of "
            f"the answer, at which the model learns to stop; max_length={tokens.longest:,} keeps all rows whole"
        )
        is_most = tokens.cut_answers >= _REFUSE_SHARE * tokens.counted
        yield Finding("refused" if is_most else "warning", "cut_answers", text)


def _of_the_end(tokens: TokenFigures, found: Measured, model: str, *, is_imitated: bool) -> Iterator[Finding]:
    if found.not_checked:
        text = f"whether the model learns to stop: {found.not_checked}; the training fails at its start if there is none"
        yield Finding("not checked", NEVER_STOPS, text)
    elif not tokens.ended and tokens.cut < tokens.counted:
        yield Finding("warning", NEVER_STOPS, _never_stops(model, found, is_imitated=is_imitated))


def _never_stops(model: str, found: Measured, *, is_imitated: bool) -> str:
    """Say that no row ends as the model generates, and what to do."""
    text = f"no row teaches the model to stop: none has {found.end}, which ends what {model} generates"
    if found.last_special and is_imitated:
        token = json.dumps(found.last_special, ensure_ascii=False)
        return (
            f"{text}; rows end with {found.last_special}: set end_token to it, or to auto, among the settings of the training "
            f'({{"settings": {{"end_token": {token}}}}}), or use a model whose template ends its turns so'
        )
    first = "; train with sft and end_token=auto first, or" if found.last_special else ";"
    return f"{text}{first} use a model whose template ends turns with its end token"
