"""The builtin trainer `sft`: supervised fine-tuning with TRL's script, whose arguments are built from typed settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import field_validator

from trainwright.api.names import END_TOKEN_VARIABLE, LOSS_ON_VARIABLE
from trainwright.jobs.trainers.trl import TrlSettings, TrlTrainer, is_switched_on, option_value
from trainwright.text.chat_templates import AUTO

ANSWERS, ALL = "answers", "all"
"""What a training learns of conversations."""


class SftSettings(TrlSettings):
    """Those, the token at which the model learns to stop, and what it learns of conversations."""

    other_names: ClassVar = {**TrlSettings.other_names, "eos_token": "end_token", "assistant_only_loss": "loss_on"}

    end_token: str = ""
    """Ends every answer, here and in what is exported: a token of the vocabulary, or `auto` for the one with which the chat template
    ends an answer. Empty: that of the tokenizer."""
    loss_on: Literal["", "answers", "all"] = ""
    """Of rows with messages, whether the loss is on the assistant's `answers` or on `all` tokens. Empty: all."""

    @field_validator("end_token")
    @classmethod
    def _is_no_expansion(cls, token: str) -> str:
        if "$(" in token or not token.isprintable():
            raise ValueError("expected a token of the vocabulary in printable letters, without $(")
        return token

    @field_validator("extra")
    @classmethod
    def _is_no_setting(cls, extra: tuple[str, ...]) -> tuple[str, ...]:
        if option_value(extra, "eos_token") == AUTO:
            raise ValueError("--eos_token auto would be the token of that name: use the setting end_token")
        return extra

    def start_variables(self) -> dict[str, str]:
        variables = {END_TOKEN_VARIABLE: AUTO} if self.end_token == AUTO else {}
        loss_on = loss_on_of(self.loss_on, self.extra)
        return variables | ({LOSS_ON_VARIABLE: loss_on} if loss_on else {})

    def own_arguments(self) -> list[str]:
        """Return the end token and the mask; a token that is `auto` is found where the model is."""
        arguments = [f"--eos_token={self.end_token}"] if self.end_token not in ("", AUTO) else []
        return [*arguments, *(["--assistant_only_loss", "True"] if self.loss_on == ANSWERS else [])]


def loss_on_of(setting: str, extra: Sequence[str]) -> str:
    """Return what a training learns of conversations, by the setting, or by TRL's option among further arguments."""
    given = is_switched_on(extra, "assistant_only_loss")
    return setting if given is None else ANSWERS if given else ALL


class SftTrainer(TrlTrainer):
    """The default trainer: the model learns to write the completions, or whole messages and texts."""

    name = "sft"
    rows = frozenset({"prompt-completion", "messages", "text"})
    settings = SftSettings
