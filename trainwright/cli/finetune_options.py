"""What the options of `trainwright finetune` and its run both name. The run imports the steps, the options do not."""

from __future__ import annotations

import enum


class Method(enum.StrEnum):
    """What is trained, and on what rows."""

    lora = "lora"
    qlora = "qlora"
    full = "full"
    dpo = "dpo"
    kto = "kto"


PREFERENCES = (Method.dpo, Method.kto)
"""Trainers of their own, by default with LoRA."""
