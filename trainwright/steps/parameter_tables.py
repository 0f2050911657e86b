"""The settings of the other steps. Written by `make edges` from the request models."""

from __future__ import annotations

from trainwright.jobs.request.setting import Setting

_ROWS = {
    "InitializeDataset": (
        Setting(
            name="dataset_uri",
            kind="text",
            default=...,
            group="step",
            description="Dataset: hf://, s3://, gs://, az://, https://, pvc:// or file:///path to a file or a folde"
            "r; see docs/sources.md.",
            example="s3://data/support.jsonl",
        ),
        Setting(
            name="layout",
            kind="text",
            default="",
            group="step",
            description="Layout of the source: alpaca, prompt-completion, messages, text ... Empty: detected from the columns.",
        ),
        Setting(
            name="test_fraction",
            kind="number",
            default=0.1,
            group="step",
            description="Fraction of the rows to hold out, if the source has no split.",
        ),
        Setting(name="max_rows", kind="integer", default=0, group="step", description="Maximum number of rows; 0 takes all."),
        Setting(
            name="columns",
            kind="object",
            default={},
            group="step",
            description='Column of the source for each column to read, as {"prompt": "frage", "completion": "antwort"}.',
        ),
        Setting(
            name="subset",
            kind="text",
            default="",
            group="step",
            description="Subset of the dataset, by its name on the hub or its folder; * takes all files. Empty: the"
            " default or only one.",
        ),
        Setting(name="split", kind="text", default="", group="step", description="Split to train on. Empty: train."),
    ),
    "InitializeModel": (
        Setting(
            name="model_uri",
            kind="text",
            default=...,
            group="step",
            description="Base model: hf://, s3://, gs://, az://, pvc:// or file:///path; see docs/sources.md.",
            example="hf://Qwen/Qwen3-0.6B",
        ),
    ),
    "PullDvcData": (
        Setting(
            name="source",
            kind="text",
            default="",
            group="step",
            description="Without repo: a path, file://, s3://, https:// or another address that `dvc import-url` takes.",
        ),
        Setting(
            name="md5",
            kind="text",
            default="",
            group="step",
            description="Without repo: DVC's MD5 of an earlier version of a source, instead of its present state.",
        ),
        Setting(
            name="repo", kind="text", default="", group="step", description="Git repository with DVC: its address, or a path."
        ),
        Setting(name="path", kind="text", default="", group="step", description="File or folder in repo."),
        Setting(
            name="rev",
            kind="text",
            default="",
            group="step",
            description="Branch, tag or commit of repo. Empty: the default branch.",
        ),
        Setting(
            name="remote",
            kind="text",
            default="",
            group="step",
            description="DVC remote to pull from. Empty: the default one of repo.",
        ),
    ),
    "PreprocessDataset": (
        Setting(
            name="data_uri",
            kind="text",
            default=...,
            group="step",
            description="file:// or pvc://, or a path in the workspace: a file or a folder of JSON Lines, JSON, CSV or Parquet.",
        ),
        Setting(
            name="columns",
            kind="object",
            default={},
            group="step",
            description='Column of the source for each column to keep, as {"prompt": "frage"}. Empty: all as they are.',
        ),
        Setting(
            name="normalize_whitespace",
            kind="flag",
            default=True,
            group="step",
            description="Whether to unify line ends and spaces, and strip texts; indentation stays.",
        ),
        Setting(
            name="transform",
            kind="text",
            default="",
            group="step",
            description="Source of a function of a row, which returns the row, or None to drop it. It contains its imports.",
        ),
        Setting(
            name="drop_empty",
            kind="flag",
            default=True,
            group="step",
            description="Whether to drop rows whose texts are all blank.",
        ),
        Setting(
            name="min_chars",
            kind="integer",
            default=0,
            group="step",
            description="Minimum length of all texts of a row together.",
        ),
        Setting(
            name="max_chars",
            kind="integer",
            default=0,
            group="step",
            description="Maximum length of all texts of a row together; 0 has none.",
        ),
        Setting(
            name="deduplicate",
            kind="flag",
            default=True,
            group="step",
            description="Whether to drop rows that equal an earlier one.",
        ),
        Setting(
            name="deduplicate_by", kind="list", default=[], group="step", description="Columns that are compared. Empty: all."
        ),
        Setting(
            name="ray_address",
            kind="text",
            default="",
            group="step",
            description="Address of a Ray cluster that sees the workspace at the same path. Empty: Ray is started in this step.",
        ),
    ),
    "ExportCheckpoint": (
        Setting(
            name="export_uri",
            kind="text",
            default=...,
            group="step",
            description="file:///path or s3://bucket/prefix for exports; each run has its own folder below it.",
            example="s3://models/support",
        ),
        Setting(
            name="trainjob",
            kind="text",
            default="",
            group="step",
            description="TrainJob that wrote the checkpoint; a checkpoint of another one is rejected.",
        ),
        Setting(
            name="folder",
            kind="text",
            default="",
            group="step",
            description="Folder of the training in the workspace, as the training returns it. Empty: that of the TrainJob.",
        ),
        Setting(
            name="resumable",
            kind="flag",
            default=True,
            group="step",
            description="Whether to export optimizer and random states too, so that a training can resume from there.",
        ),
        Setting(
            name="supersede",
            kind="flag",
            default=False,
            group="step",
            description="Whether to publish also if the run has another export of this step with other files.",
        ),
        Setting(
            name="best_metric",
            kind="text",
            default="eval_loss",
            group="step",
            description="Logged metric that chooses the run's best export, which best.json names.",
        ),
        Setting(
            name="greater_is_better",
            kind="flag",
            default=False,
            group="step",
            description="Whether a greater best_metric is better.",
        ),
    ),
    "EvaluateExport": (
        Setting(name="checkpoint_uri", kind="text", default=..., group="step", description="URI of the exported checkpoint."),
        Setting(
            name="checkpoint_digest",
            kind="text",
            default=...,
            group="step",
            description="Digest of its manifest; any other content is rejected.",
        ),
        Setting(
            name="runtime",
            kind="text",
            default="causal-lm-evaluation",
            group="step",
            description="Training runtime of the evaluation.",
        ),
        Setting(
            name="sample_row",
            kind="integer",
            default=0,
            group="step",
            description="Row (from 0) whose prompt is completed before and after fine-tuning.",
        ),
        Setting(
            name="max_rows",
            kind="integer",
            default=0,
            group="step",
            description="Evaluate only the first rows; 0 evaluates all held-out rows.",
        ),
        Setting(
            name="dataset_digest",
            kind="text",
            default="",
            group="step",
            description="Digest of another prepared dataset in the workspace to evaluate on, so that models are com"
            "pared on the same rows. Empty: that of the training.",
        ),
        Setting(
            name="tasks",
            kind="list",
            default=[],
            group="step",
            description="Tasks of lm-evaluation-harness, such as arc_easy, before and after; held_out counts exact "
            "matches on held-out rows. See docs/tools.md.",
            example='["arc_easy", "held_out"]',
        ),
        Setting(
            name="few_shot",
            kind="integer",
            default=-1,
            group="step",
            description="Examples in each prompt of a task; -1: as the task says.",
        ),
        Setting(
            name="task_limit",
            kind="integer",
            default=0,
            group="step",
            description="Maximum number of examples of each task; 0: all.",
        ),
        Setting(
            name="retention",
            kind="text",
            default="always",
            group="step",
            description="Folders of earlier runs kept on the workspace: always, or keep=N of the finished runs.",
        ),
    ),
    "PromoteModel": (
        Setting(
            name="export_uri",
            kind="text",
            default=...,
            group="step",
            description="Folder of all exports, as for the export of a checkpoint.",
        ),
        Setting(name="checkpoint_uri", kind="text", default=..., group="step", description="Export to promote."),
        Setting(
            name="checkpoint_digest",
            kind="text",
            default=...,
            group="step",
            description="Digest of its manifest; any other content is rejected.",
        ),
        Setting(
            name="evaluation",
            kind="object",
            default={},
            group="step",
            description="Figures of the export, as its evaluation returns them.",
        ),
        Setting(
            name="champion_evaluation",
            kind="object",
            default={},
            group="step",
            description="Figures of the champion on the same data. Empty: those recorded at its promotion, if of the same data.",
        ),
        Setting(
            name="champion_digest",
            kind="text",
            default="",
            group="step",
            description="Digest of the export that champion_evaluation is of.",
        ),
        Setting(
            name="rule",
            kind="text",
            default="better",
            group="step",
            description="better, or always to promote without comparison.",
            choices=("better", "always"),
        ),
        Setting(name="metric", kind="text", default="loss", group="step", description="Figure to compare."),
        Setting(
            name="greater_is_better", kind="flag", default=False, group="step", description="Whether a greater metric is better."
        ),
        Setting(name="margin", kind="number", default=0.0, group="step", description="By how much it must be better."),
        Setting(
            name="alias", kind="text", default="champion", group="step", description="champion, challenger, or another name."
        ),
    ),
    "RegisterModel": (
        Setting(name="checkpoint_uri", kind="text", default=..., group="step", description="Export to register."),
        Setting(
            name="checkpoint_digest",
            kind="text",
            default=...,
            group="step",
            description="Digest of its manifest; any other content is rejected.",
        ),
        Setting(
            name="registry",
            kind="text",
            default=...,
            group="step",
            description="hf://org/name[@branch], model-registry://host[:port]/model, or mlflow://model.",
            example="mlflow://support",
        ),
        Setting(name="name", kind="text", default="", group="step", description="The model, if registry does not name it."),
        Setting(
            name="version",
            kind="text",
            default="",
            group="step",
            description="Name of the version; a tag in the Hub. Not for MLflow.",
        ),
        Setting(
            name="alias",
            kind="text",
            default="",
            group="step",
            description="Tag (Hub) or alias (MLflow) that is moved to the version, last.",
        ),
        Setting(
            name="with_training_state",
            kind="flag",
            default=False,
            group="step",
            description="Whether to upload optimizer and random states too. Hub only.",
        ),
        Setting(
            name="log_run",
            kind="flag",
            default=False,
            group="step",
            description="Whether to log the training metrics as a run. MLflow only.",
        ),
        Setting(
            name="base_model",
            kind="text",
            default="",
            group="step",
            description="org/name of the fine-tuned model, for the model card.",
        ),
        Setting(name="datasets", kind="list", default=[], group="step", description="org/name of datasets, for the model card."),
    ),
    "ReadChampion": (
        Setting(
            name="export_uri",
            kind="text",
            default=...,
            group="step",
            description="Folder of all exports, as for the export of a checkpoint.",
        ),
        Setting(
            name="dataset_digest",
            kind="text",
            default="",
            group="step",
            description="Digest of the prepared dataset, compared with that of the champion's.",
        ),
        Setting(
            name="model_digest",
            kind="text",
            default="",
            group="step",
            description="Digest of the prepared base model. Empty: not compared.",
        ),
        Setting(
            name="always_train",
            kind="flag",
            default=False,
            group="step",
            description="Whether it counts as outdated in any case.",
        ),
        Setting(
            name="alias", kind="text", default="champion", group="step", description="champion, challenger, or another name."
        ),
    ),
    "RollBackModel": (
        Setting(
            name="export_uri",
            kind="text",
            default=...,
            group="step",
            description="Folder of all exports, as for the export of a checkpoint.",
        ),
        Setting(
            name="alias", kind="text", default="champion", group="step", description="champion, challenger, or another name."
        ),
        Setting(
            name="expected_digest",
            kind="text",
            default="",
            group="step",
            description="Digest of the manifest that the alias must name now. Empty: whatever it names.",
        ),
        Setting(name="reason", kind="text", default="", group="step", description="Recorded with the change."),
    ),
    "PlanTrials": (
        Setting(
            name="settings",
            kind="object",
            default={},
            group="step",
            description="Settings of the builtin trainer for all trials.",
        ),
        Setting(
            name="trials",
            kind="list",
            default=[],
            group="step",
            description='Settings of each trial, as [{"learning_rate": 1e-4}, {"learning_rate": 2e-4}].',
        ),
        Setting(
            name="space",
            kind="object",
            default={},
            group="step",
            description='Instead of trials: for each setting the list of its values, or a range as {"min": 1e-5, "m'
            'ax": 1e-3, "log": true}.',
        ),
        Setting(
            name="max_trials",
            kind="integer",
            default=0,
            group="step",
            description="Maximum number of trials; 0: all combinations. Required for ranges.",
        ),
        Setting(name="seed", kind="integer", default=0, group="step", description="Seed of the random choice."),
        Setting(
            name="metric",
            kind="text",
            default="",
            group="step",
            description="What the trials are to be compared by; for eval_loss, held-out rows are evaluated after each epoch.",
        ),
    ),
    "PickTrial": (
        Setting(
            name="outcomes",
            kind="list",
            default=...,
            group="step",
            description="The output `outcome` of the training of each trial, whether it succeeded or not.",
        ),
        Setting(
            name="metric",
            kind="text",
            default="eval_loss",
            group="step",
            description="A reported metric, or a number in the results of the training function.",
        ),
        Setting(
            name="greater_is_better", kind="flag", default=False, group="step", description="Whether a greater value is better."
        ),
    ),
    "StartRun": (
        Setting(
            name="workspace",
            kind="text",
            default=...,
            group="step",
            description="pvc://CLAIM[/FOLDER], the name of a claim, or pvc://CLAIM?size=20Gi[&class=&access=&retain"
            "=] to create it.",
            example="pvc://training?size=50Gi",
        ),
        Setting(name="num_nodes", kind="integer", default=1, group="step", description="Number of nodes that share a new claim."),
    ),
}
STEP_PARAMETERS = {step: {row.name: row for row in rows} for step, rows in _ROWS.items()}
"""The parameters of each step, by the name of its request."""
