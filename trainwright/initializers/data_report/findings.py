"""The verdict on a prepared dataset: what its figures say about the model that comes out, each with its severity and a way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainwright.initializers.data_report.figures import Finding, SplitFigures, TokenFigures

_WARN_SHARE, _REFUSE_SHARE = 0.05, 0.5
TRAIN, HELD_OUT = "train", "test"


def findings(
    splits: Mapping[str, SplitFigures], overlap: int, *, model: str, max_length: int, missing: str, end: str, last_special: str
) -> Iterator[Finding]:
    """Yield what is found, the worst first.

    Args:
        splits: The figures of each split.
        overlap: Held-out rows that are trained on, too.
        model: The model of the tokenizer.
        max_length: Tokens of a row in the training; 0 if it is not known.
        missing: Why no tokens were counted, empty if they were.
        end: The tokens that end a generation of the model, as text.
        last_special: The special token that most rows end with, empty without one.
    """
    tokens = splits[TRAIN].tokens
    if missing or tokens is None:
        text = f"whether answers are cut, and whether the model learns to stop: {missing or 'no tokens were counted'}"
        yield Finding("not checked", "answers", text)
    else:
        yield from _of_answers(tokens, model, max_length, end, last_special)
    if overlap:
        rows = splits[HELD_OUT].rows
        text = f"{overlap:,} of {rows:,} held-out rows are trained on, too, but for white space and case: figures on them are too good"
        yield Finding("warning" if overlap >= _WARN_SHARE * rows else "note", "overlap", text)


def _of_answers(tokens: TokenFigures, model: str, max_length: int, end: str, last_special: str) -> Iterator[Finding]:
    if not max_length:
        yield Finding("not checked", "cut_answers", "whether answers are cut: max_length of the training is not known")
    elif tokens.cut_answers >= _WARN_SHARE * tokens.counted:
        text = (
            f"{tokens.cut_answers:,} of {tokens.counted:,} rows have more than max_length={max_length:,} tokens and lose the end of "
            f"the answer, at which the model learns to stop; max_length={tokens.longest:,} keeps all rows whole"
        )
        is_most = tokens.cut_answers >= _REFUSE_SHARE * tokens.counted
        yield Finding("refused" if is_most else "warning", "cut_answers", text)
    if not tokens.ended and tokens.cut < tokens.counted:
        yield Finding("warning", "never_stops", _never_stops(model, end, last_special))


def _never_stops(model: str, end: str, last_special: str) -> str:
    """Say that no row ends as the model generates, and what to do."""
    text = f"no row teaches the model to stop: none has {end}, which ends what {model} generates"
    if last_special:
        return (
            f"{text}; rows end with {last_special}: train with this token as the end, training="
            f'{{"settings": {{"extra": ["--eos_token", "{last_special}"]}}}}, or use a model whose template ends its turns so'
        )
    return f"{text}; use a model whose template ends turns with its end token"
