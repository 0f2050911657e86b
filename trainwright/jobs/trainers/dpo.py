"""The builtin trainer `dpo`: direct preference optimization with TRL's script.

The reference is the base model: with an adapter, the model without it; with all weights, a second copy that TRL loads.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from trainwright.jobs.trainers.trl import Positive, TrlSettings, TrlTrainer

PREFERENCE_RATE = 5e-6
"""Of TRL's examples with LoRA. At the rate of supervised fine-tuning, a model forgets how to write."""


class ReferenceSettings(TrlSettings):
    """Settings of trainers that compare the model with a reference. A smaller `beta` lets it differ more."""

    has_reference: ClassVar[bool] = True
    own_options: ClassVar[dict[str, str]] = {"beta": "beta", "precompute_reference": "precompute_ref_log_probs"}
    other_names: ClassVar = {**TrlSettings.other_names, "precompute_ref_log_probs": "precompute_reference"}
    of_other_trainers: ClassVar = {
        "loss_on": "a setting of sft; dpo and kto learn from the answers after each prompt, and from nothing else",
        "end_token": "a setting of sft; train with sft and this token first, and start dpo or kto from the export of that",
    }

    learning_rate: Positive = PREFERENCE_RATE
    beta: Positive = 0.1
    precompute_reference: bool = False
    """Compute what the reference says of all rows before training, which then needs no second copy of the weights."""

    @property
    def has_second_copy(self) -> bool:
        return self.method == "full" and not self.precompute_reference


class DpoSettings(ReferenceSettings):
    """Those, and the kind of loss. A row is a pair of a chosen and a rejected answer."""

    texts_of_row: ClassVar[int] = 2
    own_options: ClassVar[dict[str, str]] = {**ReferenceSettings.own_options, "loss": "loss_type"}
    other_names: ClassVar = {**ReferenceSettings.other_names, "loss_type": "loss"}

    loss: Literal["sigmoid", "hinge", "ipo", "robust", "apo_zero", "apo_down", "sigmoid_norm"] = "sigmoid"
    batch_size: Annotated[int, Field(ge=1)] = 8
    """Pairs per process and step."""


class DpoTrainer(TrlTrainer):
    """The model learns to prefer the chosen answers to the rejected ones."""

    name = "dpo"
    rows = frozenset({"preference"})
    settings = DpoSettings
