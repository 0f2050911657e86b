"""The builtin trainer `kto`: Kahneman-Tversky optimization with TRL's script, for answers that are each marked good or bad.

The reference is that of `dpo`. TRL makes two answers of a pair of preferences itself.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from trainwright.jobs.trainers.dpo import ReferenceSettings
from trainwright.jobs.trainers.trl import Positive, TrlTrainer


class KtoSettings(ReferenceSettings):
    """Those, and the weights of both kinds of answers, for data that have many more of one."""

    least_rows: ClassVar[int] = 2
    own_options: ClassVar[dict[str, str]] = {
        **ReferenceSettings.own_options,
        "desirable_weight": "desirable_weight",
        "undesirable_weight": "undesirable_weight",
    }

    desirable_weight: Positive = 1.0
    undesirable_weight: Positive = 1.0
    batch_size: Annotated[int, Field(ge=2)] = 8
    """Rows per process and step; the answers of the other rows are the measure of each."""


class KtoTrainer(TrlTrainer):
    """The model learns to write more like the answers marked good and less like those marked bad."""

    name = "kto"
    rows = frozenset({"kto", "preference"})
    settings = KtoSettings
