"""What the report on a dataset learns from the settings of the training that follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.jobs.trainers.sft import loss_on_of
from trainwright.jobs.trainers.trl import TrlSettings, option_value

OF_TRL = ("sft", "dpo", "kto")
RUNTIMES_OF_TRL = tuple(f"trl-{trainer}" for trainer in OF_TRL)
"""The stock runtimes, whose arguments change nothing of what becomes of rows."""
_CHANGE_LENGTHS = ("max_length", "packing", "truncation_mode", "completion_only_loss")
_CHANGE_TOKENS = ("chat_template_path", "dataset_text_field")
"""Options of TRL's scripts among `extra` arguments, with which rows become other tokens than the report counts."""


def report_settings(settings: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """Return `max_length`, `end_token`, `loss_on` and `report_mode` of the dataset's step, as far as settings of the trainer say so.

    `trainer` is its name, empty for another program: one that is not TRL's may train on what TRL would not. Extra arguments that
    change what becomes of rows leave the report without `max_length`, or without the model.
    """
    if trainer not in OF_TRL:
        return {"report_mode": "warn"}
    words = [str(word) for word in settings.get("extra") or ()]
    if any(option_value(words, name) is not None for name in _CHANGE_TOKENS):
        return {"report_mode": "off"}
    end = option_value(words, "eos_token") or str(settings.get("end_token") or "")
    loss_on = loss_on_of(str(settings.get("loss_on") or ""), words)
    found = {name: value for name, value in (("end_token", end), ("loss_on", loss_on)) if value}
    if any(option_value(words, name) is not None for name in _CHANGE_LENGTHS):
        return found
    return found | {"max_length": settings.get("max_length") or TrlSettings.model_fields["max_length"].default}
