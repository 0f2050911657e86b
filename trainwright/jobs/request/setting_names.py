"""Names of the settings of a training step, and of those that other parts of a run take too. Light: Airflow loads it when it parses
DAGs."""

from __future__ import annotations

from trainwright.jobs.request.settings_table import TABLE

SETTINGS = tuple(TABLE)
WAIT_SETTINGS = tuple(name for name, setting in TABLE.items() if setting.group in ("deadlines", "logs"))
"""How to wait for a job."""
EVALUATION_SETTINGS = tuple(name for name, setting in TABLE.items() if "evaluate" in setting.used_by)
"""Of the job of an evaluation."""
STEP_SETTINGS = tuple(name for name, setting in TABLE.items() if "step" in setting.used_by)
"""Of the job in which a step of files runs."""
TEXTS = frozenset(
    {
        "annotations",
        "args",
        "command",
        "dataset_env",
        "env",
        "labels",
        "model_env",
        "node_selector",
        "packages_to_install",
        "pip_index_urls",
        "tracking",
    }
)
"""Lists and objects whose entries are text: there, an integer is written as one, "7" and not "7.0"."""
