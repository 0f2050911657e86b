"""Recognises training progress in log lines, for jobs that do not report `status.trainerStatus`. Pure.

A table of parsers for known formats. Lines are only matched against patterns, never evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trainwright.text.foreign_texts import plain

MAX_CHARACTERS = 4096
"""Longest line, or state of a progress bar, that is parsed."""
_MAX_STATES = 4
"""Number of the last states of a progress bar that are parsed when one line contains several."""
_MAX_METRICS = 32
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?i:inf(?:inity)?|nan)"
_NAME = r"[A-Za-z_][\w./-]{0,63}"


@dataclass(frozen=True)
class ParsedProgress:
    """Metrics of a line and, for a progress bar of the whole training, steps done, total steps and seconds left."""

    metrics: tuple[tuple[str, str], ...] = ()
    done: int = 0
    total: int = 0
    remaining_seconds: int | None = None


def parse_progress(line: str) -> ParsedProgress | None:
    """Parse the progress in a log line; None if there is none. Of a redrawn progress bar, the last states are read."""
    found: ParsedProgress | None = None
    for state in line.rsplit("\r", _MAX_STATES)[-_MAX_STATES:]:
        if 0 < len(state) <= MAX_CHARACTERS:
            state = plain(state) if "\x1b" in state else state
            found = _merge(found, next((parsed for parser in _PARSERS if (parsed := parser(state)) is not None), None))
    return found


def _merge(earlier: ParsedProgress | None, later: ParsedProgress | None) -> ParsedProgress | None:
    if earlier is None or later is None:
        return later or earlier
    metrics = tuple({**dict(earlier.metrics), **dict(later.metrics)}.items())
    bar = later if later.total else earlier
    return ParsedProgress(metrics, bar.done, bar.total, bar.remaining_seconds)


_PAIR = re.compile(rf"""\s*(['"])({_NAME})\1\s*:\s*(?:(['"]?)({_NUMBER})\3|'[^']*'|"[^"]*"|None|null|True|true|False|false)\s*""")
_METRIC_NAMES = re.compile(r"loss|epoch|step|^eval_|^train_|accuracy|perplexity")


def _dictionary(text: str) -> ParsedProgress | None:
    """`{'loss': 1.2, 'learning_rate': '2e-05', 'epoch': 0.5}`, as transformers' Trainer and TRL print it, or as JSON."""
    begin, text = text.find("{"), text.rstrip()
    if begin < 0 or not text.endswith("}"):
        return None
    metrics, at, end = {}, begin + 1, len(text) - 1
    while at < end:
        match = _PAIR.match(text, at, end)
        if match is None or (match.end() < end and text[match.end()] != ","):
            return None
        if match[4] is not None:
            metrics[match[2]] = match[4]
        at = match.end() + 1
    return _progress(metrics) if any(_METRIC_NAMES.search(name) for name in metrics) else None


_TORCHTUNE = re.compile(rf"(\d{{1,9}})\|(\d{{1,9}})\|Loss: ({_NUMBER})")


def _torchtune(text: str) -> ParsedProgress | None:
    """`1|20|Loss: 1.234: 20%|...`: epoch, step and loss of torchtune."""
    match = _TORCHTUNE.search(text)
    return _progress({"loss": match[3], "epoch": match[1], "step": match[2]}) if match else None


_STEP_LINE = re.compile(rf"Step (\d{{1,9}}) \|((?: {_NAME}:(?:{_NUMBER}))+) *$")
_COLON = re.compile(rf"({_NAME}):({_NUMBER})")


def _torchtune_logger(text: str) -> ParsedProgress | None:
    """`Step 3 | loss:1.2 lr:2e-05`: torchtune's logger on standard output."""
    match = _STEP_LINE.match(text)
    return _progress({**dict(_COLON.findall(match[2])), "step": match[1]}) if match else None


_BAR = re.compile(r"(.{0,200}?)\b\d{1,3}%\|[^|]*\| *(\d{1,12})/(\d{1,12}) \[[\d:?]+<([\d:?]+)(?:, ([^\]]*))?\]?")
_EQUAL = re.compile(rf"({_NAME})=({_NUMBER})(?![\w.])")
_EPOCH = re.compile(rf"\bepochs?\b[ :=\[#]{{0,3}}({_NUMBER})", re.IGNORECASE)


def _bar(text: str) -> ParsedProgress | None:
    """A tqdm bar. Without a name it covers the whole training; an epoch's bar gives metrics; others (downloads) are ignored."""
    match = _BAR.match(text)
    if match is None:
        return None
    name, metrics = match[1].strip(), dict(_EQUAL.findall(match[5] or ""))
    if not name:
        return _progress(metrics, int(match[2]), int(match[3]), _seconds(match[4]))
    if (epoch := _EPOCH.match(name)) is not None:
        return _progress({**metrics, "epoch": epoch[1]})
    return _progress(metrics) if any("loss" in metric for metric in metrics) else None


_LOSS = re.compile(
    rf"\b((?:(?:train|training|val|validation|eval|test)[_ /-]?)?loss)\b *[:=] *({_NUMBER})(?![\w.])", re.IGNORECASE
)
_STEP = re.compile(r"\b(?:step|iter|iteration)s?\b[ :=\[#]{0,3}(\d{1,12})", re.IGNORECASE)


def _key_values(text: str) -> ParsedProgress | None:
    """`Epoch [1/5], Step [100/600], Loss: 0.23` and `epoch=1 step=20 train_loss=0.5`, as PyTorch examples and Lightning print it."""
    found = {name.lower().replace(" ", "_"): value for name, value in _LOSS.findall(text)}
    if not found:
        return None
    for name, pattern in (("epoch", _EPOCH), ("step", _STEP)):
        if (match := pattern.search(text)) is not None:
            found[name] = match[1]
    return _progress(found)


_MLX_LINE = re.compile(rf"Iter (\d{{1,9}}): (Train|Val) loss ({_NUMBER}),(?: Learning Rate ({_NUMBER}),)? ")
_MLX_ROW = re.compile(rf" +(\d{{1,9}}) +(val )? *({_NUMBER}) +(?:[\u25b2\u25bc] +[\d,]+ +[\d.]+k|\d+\.\d\ds) *$")


def _mlx_lm(text: str) -> ParsedProgress | None:
    """`Iter 10: Train loss 2.031, Learning Rate 1e-05, ...` of mlx_lm, and from 0.32 `    10    2.031 ▼    3,470      0.4k`.

    With `Val`, or `val` before the number, it is the loss of an evaluation.
    """
    if (line := _MLX_LINE.match(text)) is not None:
        rate = {} if line[4] is None else {"learning_rate": line[4]}
        return _progress({"loss" if line[2] == "Train" else "eval_loss": line[3], **rate, "step": line[1]})
    row = _MLX_ROW.match(text)
    if row is None or (row[2] is None) == text.rstrip().endswith("s"):
        return None
    return _progress({"eval_loss" if row[2] else "loss": row[3], "step": row[1]})


_XGBOOST = re.compile(rf"\[(\d{{1,9}})\]((?:\t{_NAME}:{_NUMBER})+)$")
_XGBOOST_LOSSES = ("train-logloss", "train-mlogloss")
"""What a training without another objective minimizes. Other metrics, such as rmse or auc, are not called losses."""


def _xgboost(text: str) -> ParsedProgress | None:
    """`[3]\\ttrain-logloss:0.61\\teval-logloss:0.65`: round and metrics of XGBoost, by data set and metric."""
    match = _XGBOOST.match(text.rstrip())
    if match is None:
        return None
    found = dict(part.rsplit(":", 1) for part in match[2].split("\t")[1:])
    loss = next((found[name] for name in _XGBOOST_LOSSES if name in found), None)
    return _progress({**({} if loss is None else {"loss": loss}), **found, "step": match[1]})


_PARSERS: tuple[Callable[[str], ParsedProgress | None], ...] = (
    _dictionary,
    _torchtune,
    _torchtune_logger,
    _mlx_lm,
    _xgboost,
    _bar,
    _key_values,
)


def _progress(metrics: dict[str, str], done: int = 0, total: int = 0, left: int | None = None) -> ParsedProgress:
    return ParsedProgress(tuple(list(metrics.items())[:_MAX_METRICS]), done, total, left)


def _seconds(clock: str) -> int | None:
    """Return the seconds of `MM:SS` or `H:MM:SS`; None if the bar shows no estimate."""
    parts = clock.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and len(part) < 10 for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds
