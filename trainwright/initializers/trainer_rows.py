"""Checks that a builtin trainer learns from rows of a layout: TRL's scripts may train on others, too, and learn something else."""

from __future__ import annotations

from trainwright.initializers.errors import InitializerError
from trainwright.initializers.layouts import KTO, LAYOUTS, MESSAGES, PREFERENCE, PROMPT_COMPLETION, TEXT
from trainwright.workspace.receipt import Receipt

_NAMES = {
    PROMPT_COMPLETION: "prompts with one answer each",
    MESSAGES: "conversations",
    TEXT: "texts",
    PREFERENCE: "chosen and rejected answers",
    KTO: "answers marked good or bad",
}
_OTHER_COLUMNS = {
    PREFERENCE: 'columns={"prompt": ..., "completion": "chosen"} leaves the chosen answers',
    KTO: 'keep those marked good, and columns={"prompt": ..., "completion": ...} leaves the mark out',
}
"""How examples to imitate are made of rows of other kinds."""
IMITATION = frozenset({PROMPT_COMPLETION, MESSAGES, TEXT})
"""The kinds of rows that `sft` learns from."""


def check_trainer(layout: str, trainer: str, where: str) -> None:
    """Raise InitializerError if the builtin trainer does not learn from rows of the layout; an empty name accepts all."""
    if not trainer:
        return
    from trainwright.jobs.trainers.builtin_trainers import NoSuchTrainer, builtin_trainers, named_trainer  # slow

    try:
        accepted = named_trainer(trainer).rows
    except NoSuchTrainer as error:
        raise InitializerError(f"trainer: {error}") from None
    kind = LAYOUTS[layout].rows
    if not accepted or kind in accepted:
        return
    others = [f"builtin={name}" for name, each in builtin_trainers().items() if kind in each.rows]
    advice = [f"use {' or '.join(others)}"] if others else []
    if kind in _OTHER_COLUMNS and accepted & IMITATION:
        advice.append(_OTHER_COLUMNS[kind])
    elif PREFERENCE in accepted:
        advice.append('name the answers to compare with columns={"prompt": ..., "chosen": ..., "rejected": ...}')
    expected = " or ".join(_NAMES[each] for each in _NAMES if each in accepted)
    raise InitializerError(
        f"{where}: the rows are {_NAMES[kind]} (layout {layout}), but the trainer {trainer} learns from {expected}: "
        f"{'; or '.join(advice)}"
    )


def renders_messages(trainer: str) -> bool:
    """Whether a builtin trainer renders messages by the chat template of the model, as TRL's do."""
    from trainwright.jobs.trainers.builtin_trainers import NoSuchTrainer, named_trainer  # slow
    from trainwright.jobs.trainers.trl import TrlTrainer

    try:
        return isinstance(named_trainer(trainer), TrlTrainer)
    except NoSuchTrainer:  # whoever reads its rows says so
        return False


def check_receipt(receipt: Receipt, trainer: str) -> None:
    """Raise InitializerError if the builtin trainer does not learn from the rows of a prepared dataset."""
    layout = receipt.details.get("layout")
    if isinstance(layout, str) and layout in LAYOUTS:
        check_trainer(layout, trainer, receipt.source)
