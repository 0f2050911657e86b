"""The provider information for Airflow. It imports only the version, because Airflow reads it during its own import."""

from __future__ import annotations

from typing import Any

from trainwright import __version__

DOCUMENTATION = "docs/airflow/index.md"
"""In the sources: the documentation has no public address yet. Once it has one, `[project.urls]` of pyproject.toml takes it too, as
`Documentation`: Airflow links the provider to that."""


def get_provider_info() -> dict[str, Any]:
    """The provider information, according to Airflow's provider_info.schema.json."""
    integration = "Trainwright"
    modules = (
        "train_job",
        "initialize_dataset",
        "initialize_model",
        "start_run",
        "export_checkpoint",
        "evaluate",
        "promote_model",
        "read_champion",
        "register_model",
        "roll_back_model",
        "suspend_train_job",
        "resume_train_job",
        "retire_run",
        "delete_train_job",
        "clean_up",
        "sweep.train_trial",
        "sweep.stop_hopeless_trials",
        "pull_dvc_data",
        "preprocess_dataset",
        "sweep.plan_trials",
        "sweep.pick_trial",
    )
    triggers = ("trigger", "named_job_trigger", "train_job_watcher")
    return {
        "package-name": "trainwright",
        "name": integration,
        "description": f"Fine-tuning on Kubeflow Trainer v2: TrainJobs, datasets, models, checkpoints. Described in {DOCUMENTATION}.",
        "versions": [__version__],
        "integrations": [{"integration-name": integration, "external-doc-url": DOCUMENTATION}],
        "operators": [{"integration-name": integration, "python-modules": [f"trainwright.operators.{name}" for name in modules]}],
        "sensors": [{"integration-name": integration, "python-modules": ["trainwright.operators.train_job_sensor"]}],
        "triggers": [{"integration-name": integration, "python-modules": [f"trainwright.operators.{name}" for name in triggers]}],
        "task-decorators": [{"name": "trainjob", "class-name": "trainwright.operators.decorator.trainjob_task"}],
        "hooks": [{"integration-name": integration, "python-modules": ["trainwright.operators.hook"]}],
        "extra-links": [
            f"trainwright.operators.reporting.links.{name}" for name in ("TrainJobLink", "LogsLink", "CheckpointLink")
        ],
        "connection-types": [
            {
                "connection-type": "trainwright",
                "hook-class-name": "trainwright.operators.hook.TrainwrightHook",
                "hook-name": integration,
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "login", "password", "port"],
                    "relabeling": {},
                    "placeholders": {},
                },
                "conn-fields": {
                    "kubeconfig": {"label": "Path of a kubeconfig", "schema": {"type": ["string", "null"]}},
                    "context": {"label": "Context of the kubeconfig", "schema": {"type": ["string", "null"]}},
                    "namespace": {"label": "Namespace", "schema": {"type": ["string", "null"]}},
                    "in_cluster": {"label": "Only the pod's service account", "schema": {"type": ["boolean", "null"]}},
                    "submission_mode": {
                        "label": "Mode: auto, trainjob, jobset or embedded",
                        "schema": {"type": ["string", "null"]},
                    },
                    "allowed_places": {"label": "Allowed places (prefixes with commas)", "schema": {"type": ["string", "null"]}},
                    "trainjob_url": {"label": "Link to a TrainJob", "schema": {"type": ["string", "null"]}},
                    "logs_url": {"label": "Link to the logs of a TrainJob", "schema": {"type": ["string", "null"]}},
                },
            }
        ],
    }
