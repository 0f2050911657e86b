"""How to report on a dataset. Beside the report, because requests and forms read it where nothing is prepared."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

ReportMode = Literal["auto", "required", "warn", "off"]


class ReportOptions(BaseModel):
    """How to report on a prepared dataset; this changes nothing of the dataset.

    model_uri: the model that will be trained, whose tokenizer counts the tokens; empty: they are not counted.
    max_length: tokens of a row in the training, which cuts longer ones; 0: not known.
    report_mode: `required` fails if the tokenizer cannot be fetched, `warn` not even for rows on which TRL would fail, `off` looks at
        no model.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_uri: str = ""
    max_length: Annotated[int, Field(ge=0)] = 0
    report_mode: ReportMode = "auto"
