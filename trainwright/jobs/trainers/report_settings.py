"""What the report on a dataset learns from the settings of the training that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainwright.jobs.trainers.trl import TrlSettings

_OF_TRL = ("sft", "dpo", "kto")
RUNTIMES_OF_TRL = tuple(f"trl-{trainer}" for trainer in _OF_TRL)
"""The stock runtimes, whose arguments change nothing of what becomes of rows."""
_CHANGE_LENGTHS = ("max_length", "packing", "truncation_mode", "completion_only_loss", "assistant_only_loss")
_CHANGE_TOKENS = ("chat_template_path", "dataset_text_field")
"""Options of TRL's scripts among `extra` arguments, with which rows become other tokens than the report counts."""


def report_settings(settings: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """Return `max_length`, `end_token` and `report_mode` of the dataset's step as far as the settings of the builtin trainer say so.

    `trainer` is its name, empty for another program: one that is not TRL's may train on what TRL would not. Extra arguments that
    change what becomes of rows leave the report without `max_length`, or without the model.
    """
    if trainer not in _OF_TRL:
        return {"report_mode": "warn"}
    words = [str(word) for word in settings.get("extra") or ()]
    options = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in words}
    if options & {*_CHANGE_TOKENS}:
        return {"report_mode": "off"}
    end = {"end_token": token} if (token := _end_token(words)) else {}
    if options & {*_CHANGE_LENGTHS}:
        return end
    return end | {"max_length": settings.get("max_length") or TrlSettings.model_fields["max_length"].default}


def _end_token(words: Sequence[str]) -> str:
    """Return the value of the last `--eos_token` among arguments, empty without one."""
    found = ""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name in ("--eos_token", "--eos-token"):
            found = value if equals else following
    return found
