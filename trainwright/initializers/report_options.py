"""How to report on a dataset. Beside the report, because requests and forms read it where nothing is prepared."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from trainwright.initializers.report_modes import LossOn, ReportMode
from trainwright.storage.errors import BadUri
from trainwright.storage.uri import StorageUri
from trainwright.text.hub_names import with_scheme


class ReportOptions(BaseModel):
    """How to report on a prepared dataset; this changes nothing of the dataset.

    model_uri: the model that will be trained, whose tokenizer counts the tokens; empty: they are not counted.
    max_length: tokens of a row in the training, which cuts longer ones; 0: not known.
    end_token: the token that ends every row in the training; `auto` is that with which the chat template ends an answer; empty: that
        of the tokenizer.
    loss_on: whether the training has its loss on the assistant's `answers` of messages; empty, `all`: on all tokens.
    report_mode: `required` fails if the tokenizer cannot be fetched, `warn` not even for rows on which TRL would fail, `off` looks at
        no model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_uri: str = ""
    max_length: Annotated[int, Field(ge=0)] = 0
    end_token: str = ""
    loss_on: LossOn = ""
    report_mode: ReportMode = "auto"

    @field_validator("model_uri")
    @classmethod
    def _is_address(cls, uri: str) -> str:
        try:
            if uri:
                StorageUri.parse(with_scheme(uri.strip()))
        except BadUri as error:
            raise ValueError(str(error)) from None
        return uri

    @field_validator("report_mode")
    @classmethod
    def _has_model(cls, mode: ReportMode, info: ValidationInfo) -> ReportMode:
        if mode == "required" and not info.data.get("model_uri", "unknown"):
            raise ValueError("required needs a model whose tokenizer counts the tokens: set model_uri")
        return mode
