"""What the steps that prepare data and models are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from trainwright.initializers.report_modes import LossOn, ReportMode
from trainwright.jobs.request.setting import Check, setting
from trainwright.jobs.request.setting_types import Count, Object, Texts
from trainwright.steps.requests.step_request import StepRequest


def _fraction(value: float) -> float:
    if not 0 <= value < 1:
        raise ValueError("expected a number from 0 to less than 1")
    return value


@dataclass(frozen=True, kw_only=True)
class InitializeDataset(StepRequest):
    """Fetch a dataset, split it, and store it in the workspace by its digest."""

    dataset_uri: str = setting(
        "Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path to a file or a folder; see docs/sources.md.",
        example="s3://data/support.jsonl",
        place="uri",
    )
    layout: str = setting(
        "Layout of the source: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.", ""
    )
    test_fraction: Annotated[float, Check(_fraction)] = setting(
        "Fraction of the rows to hold out, if the source has no split.", 0.1
    )
    max_rows: Count = setting("Maximum number of rows; 0 takes all.", 0)
    columns: Object = setting(
        'Column of the source for each column to read, as {"prompt": "frage", "completion": "antwort"}.', {}
    )
    subset: str = setting(
        "Subset of the dataset, by its name on the hub or its folder; * takes all files. Empty: the default or only one.", ""
    )
    split: str = setting("Split to train on. Empty: train.", "")
    drop_overlap: bool = setting(
        "Whether to leave out rows to train on that are held out, too, but for white space and case.", False
    )
    model_uri: str = setting(
        "Model that will be trained, whose tokenizer counts the tokens of rows for the report. Empty: no tokens are counted.",
        "",
        place="uri",
    )
    max_length: Count = setting("Tokens of a row in the training, which cuts longer ones, for the report. 0: not known.", 0)
    end_token: str = setting(
        "Token that ends every row in the training, as its end_token, for the report. Empty: that of the tokenizer.", ""
    )
    loss_on: LossOn = setting("What the training learns of messages, as its loss_on, for the report: answers, or all.", "")
    report_mode: ReportMode = setting(
        "auto fails for rows on which TRL would fail; required also if the tokenizer cannot be fetched; warn never; off looks at no "
        "model.",
        "auto",
    )
    trainer: str = setting(
        "Builtin trainer that the rows are for; others are refused. Empty: any. Pipelines and DAGs set it.", "", example="dpo"
    )


@dataclass(frozen=True, kw_only=True)
class InitializeModel(StepRequest):
    """Fetch a base model, and store it in the workspace by its digest."""

    model_uri: str = setting(
        "Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.",
        example="hf://Qwen/Qwen3-0.6B",
        place="uri",
    )


@dataclass(frozen=True, kw_only=True)
class PullDvcData(StepRequest):
    """Pull a version of data with DVC into the workspace."""

    source: str = setting(
        "Without repo: a path, file://, s3://, https:// or another address that `dvc import-url` takes.", "", place="uri"
    )
    md5: str = setting("Without repo: DVC's MD5 of an earlier version of a source, instead of its present state.", "")
    repo: str = setting("Git repository with DVC: its address, or a path.", "", place="uri")
    path: str = setting("File or folder in repo.", "")
    rev: str = setting("Branch, tag or commit of repo. Empty: the default branch.", "")
    remote: str = setting("DVC remote to pull from. Empty: the default one of repo.", "")


@dataclass(frozen=True, kw_only=True)
class PreprocessDataset(StepRequest):
    """Preprocess rows with Ray Data. The operations are applied in the order of the parameters."""

    data_uri: str = setting(
        "file:// or pvc://, or a path in the workspace: a file or a folder of JSON Lines, JSON, CSV or Parquet.", place="uri"
    )
    columns: Object = setting('Column of the source for each column to keep, as {"prompt": "frage"}. Empty: all as they are.', {})
    normalize_whitespace: bool = setting("Whether to unify line ends and spaces, and strip texts; indentation stays.", True)
    transform: str = setting(
        "Source of a function of a row, which returns the row, or None to drop it. It contains its imports.", ""
    )
    drop_empty: bool = setting("Whether to drop rows whose texts are all blank.", True)
    min_chars: Count = setting("Minimum length of all texts of a row together.", 0)
    max_chars: Count = setting("Maximum length of all texts of a row together; 0 has none.", 0)
    deduplicate: bool = setting("Whether to drop rows that equal an earlier one.", True)
    deduplicate_by: Texts = setting("Columns that are compared. Empty: all.", [])
    ray_address: str = setting(
        "Address of a Ray cluster that sees the workspace at the same path. Empty: Ray is started in this step.", ""
    )
