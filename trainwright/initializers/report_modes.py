"""The words with which a report on a dataset is asked for, apart from the report: forms show them where nothing is prepared."""

from typing import Literal

ReportMode = Literal["auto", "required", "warn", "off"]
LossOn = Literal["", "answers", "all"]
