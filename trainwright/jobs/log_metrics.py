"""What a training program prints of its progress, recognised line by line: for jobs that report nothing themselves. Pure.

One table of forms. A line of none of them says nothing; a line of one is never evaluated, only matched.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MOST_CHARACTERS = 4096
"""Of one line, or of one state of a progress bar: what is longer is no report of progress."""
_MOST_STATES = 4
"""How many of the last states of a bar are read, where they stand in one line."""
_MOST_METRICS = 32
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?inf|nan"
_NAME = r"[A-Za-z_][\w./-]{0,63}"


@dataclass(frozen=True)
class Reading:
    """What a line says: metrics, and where it is a bar over the whole training, steps done, steps in all and seconds left."""

    metrics: tuple[tuple[str, str], ...] = ()
    done: int = 0
    total: int = 0
    remaining_seconds: int | None = None


def reading_of(line: str) -> Reading | None:
    """What a line of a log says of progress; of a bar that was drawn over itself, its last states."""
    found: Reading | None = None
    for state in line.rsplit("\r", _MOST_STATES)[-_MOST_STATES:]:
        if 0 < len(state) <= MOST_CHARACTERS:
            found = _joined(found, next((said for form in _FORMS if (said := form(state)) is not None), None))
    return found


def _joined(earlier: Reading | None, later: Reading | None) -> Reading | None:
    if earlier is None or later is None:
        return later or earlier
    metrics = tuple({**dict(earlier.metrics), **dict(later.metrics)}.items())
    bar = later if later.total else earlier
    return Reading(metrics, bar.done, bar.total, bar.remaining_seconds)


_PAIR = re.compile(rf"""\s*(['"])({_NAME})\1\s*:\s*(?:(['"]?)({_NUMBER})\3|'[^']*'|"[^"]*"|None|null|True|true|False|false)\s*""")
_TELLING = re.compile(r"loss|epoch|step|^eval_|^train_|accuracy|perplexity")


def _dictionary(text: str) -> Reading | None:
    """`{'loss': 1.2, 'learning_rate': '2e-05', 'epoch': 0.5}`: the Trainer of transformers and TRL; the same as JSON."""
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
    return _reading(metrics) if any(_TELLING.search(name) for name in metrics) else None


_TORCHTUNE = re.compile(rf"(\d{{1,9}})\|(\d{{1,9}})\|Loss: ({_NUMBER})")


def _torchtune(text: str) -> Reading | None:
    """`1|20|Loss: 1.234: 20%|...`: epoch, step and loss of torchtune."""
    match = _TORCHTUNE.search(text)
    return _reading({"loss": match[3], "epoch": match[1], "step": match[2]}) if match else None


_STEP_LINE = re.compile(rf"Step (\d{{1,9}}) \|((?: {_NAME}:(?:{_NUMBER}))+) *$")
_COLON = re.compile(rf"({_NAME}):({_NUMBER})")


def _torchtune_logger(text: str) -> Reading | None:
    """`Step 3 | loss:1.2 lr:2e-05`: torchtune's logger on standard output."""
    match = _STEP_LINE.match(text)
    return _reading({**dict(_COLON.findall(match[2])), "step": match[1]}) if match else None


_BAR = re.compile(r"(.{0,200}?)\b\d{1,3}%\|[^|]*\| *(\d{1,12})/(\d{1,12}) \[[\d:?]+<([\d:?]+)(?:, ([^\]]*))?\]?")
_EQUAL = re.compile(rf"({_NAME})=({_NUMBER})(?![\w.])")
_EPOCH = re.compile(rf"\bepochs?\b[ :=\[#]{{0,3}}({_NUMBER})", re.IGNORECASE)


def _bar(text: str) -> Reading | None:
    """A bar of tqdm. One without a name is over the whole training; one of an epoch tells its metrics; others (downloads) nothing."""
    match = _BAR.match(text)
    if match is None:
        return None
    name, metrics = match[1].strip(), dict(_EQUAL.findall(match[5] or ""))
    if not name:
        return _reading(metrics, int(match[2]), int(match[3]), _seconds(match[4]))
    if (epoch := _EPOCH.match(name)) is not None:
        return _reading({**metrics, "epoch": epoch[1]})
    return _reading(metrics) if any("loss" in metric for metric in metrics) else None


_LOSS = re.compile(
    rf"\b((?:(?:train|training|val|validation|eval|test)[_ /-]?)?loss)\b *[:=] *({_NUMBER})(?![\w.])", re.IGNORECASE
)
_STEP = re.compile(r"\b(?:step|iter|iteration)s?\b[ :=\[#]{0,3}(\d{1,12})", re.IGNORECASE)


def _words(text: str) -> Reading | None:
    """`Epoch [1/5], Step [100/600], Loss: 0.23` and `epoch=1 step=20 train_loss=0.5`, as examples and Lightning print."""
    found = {name.lower().replace(" ", "_"): value for name, value in _LOSS.findall(text)}
    if not found:
        return None
    for name, pattern in (("epoch", _EPOCH), ("step", _STEP)):
        if (match := pattern.search(text)) is not None:
            found[name] = match[1]
    return _reading(found)


_FORMS: tuple[Callable[[str], Reading | None], ...] = (_dictionary, _torchtune, _torchtune_logger, _bar, _words)


def _reading(metrics: dict[str, str], done: int = 0, total: int = 0, left: int | None = None) -> Reading:
    return Reading(tuple(list(metrics.items())[:_MOST_METRICS]), done, total, left)


def _seconds(clock: str) -> int | None:
    """Of `MM:SS` or `H:MM:SS`; None where a bar does not know."""
    parts = clock.split(":")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and len(part) < 10 for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds
