"""What the report on a dataset learns from the settings of the training that follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.jobs.trainers.sft import RUNTIME, SftSettings

_OTHER_PROGRAMS = ("func", "code", "manifest", "command", "args")
_CHANGE_LENGTHS = ("max_length", "packing", "truncation_mode", "completion_only_loss", "assistant_only_loss")
_CHANGE_TOKENS = ("chat_template_path", "eos_token", "dataset_text_field")
"""Options of TRL's script among `extra` arguments, with which rows become other tokens than the report counts."""


def report_settings(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return `max_length` and `report_mode` of the dataset's step as far as the settings of the training say them.

    Without `max_length`, it is the default of supervised fine-tuning if that trains. Extra arguments that change what becomes of rows
    leave the report without it, or without the model. Other programs than TRL's may train on what TRL would not.
    """
    is_builtin = training.get("builtin") not in (None, "")
    if any(training.get(name) for name in _OTHER_PROGRAMS) or not (is_builtin or training.get("runtime") in (None, "", RUNTIME)):
        return {"report_mode": "warn"}
    settings = training.get("settings") or {}
    options = {str(word).lstrip("-").partition("=")[0].replace("-", "_") for word in settings.get("extra") or ()}
    if options & {*_CHANGE_TOKENS}:
        return {"report_mode": "off"}
    is_sft = training.get("builtin") in (None, "", "sft")
    length = settings.get("max_length") or (SftSettings().max_length if is_sft else 0)
    return {"max_length": length} if length and not options & {*_CHANGE_LENGTHS} else {}
