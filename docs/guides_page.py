"""Writes docs/airflow/guides.md from the example DAGs of the operators; `make docs` runs it, and a test compares them."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "airflow" / "guides.md"
EXAMPLES = ROOT / "operators" / "example_dags"
TITLES = {
    "example_training": "Train",
    "example_fine_tuning": "Fine-tune, step by step",
    "example_models": "Promote, register, roll back",
    "example_sweep": "Try several settings",
    "example_stopping": "Suspend, resume, delete, clean up",
    "example_watching": "Act on trainings of others",
}
BEGINNING = """\
# Guides with an example of every operator

Each is a whole DAG of [operators/example_dags](../../operators/example_dags), installed as `trainwright.operators.example_dags`.
Parameters are in the docstrings of the operators. The connections `cluster`, `s3` and `hub` are [yours](connection.md); without
`conn_id` the environment of the worker names the cluster. `make docs` writes this page.
"""


def page() -> str:
    """The content of the page."""
    parts = [BEGINNING]
    for name, title in TITLES.items():
        text = (EXAMPLES / f"{name}.py").read_text("utf-8")
        about = ast.get_docstring(ast.parse(text)) or ""
        code = text[text.index("from __future__") :].split("\n\n", 1)[1].strip()
        parts.append(f"## {title}\n\n{about}\n\n```python\n{code}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
