"""The builtin trainer `sft`: supervised fine-tuning with TRL's script, whose arguments are built from typed settings."""

from __future__ import annotations

from trainwright.jobs.trainers.trl import TrlSettings, TrlTrainer


class SftSettings(TrlSettings):
    """The common settings alone."""


class SftTrainer(TrlTrainer):
    """The default trainer: the model learns to write the completions, or whole messages and texts."""

    name = "sft"
    rows = frozenset({"prompt-completion", "messages", "text"})
    settings = SftSettings
