"""Airflow in each minor version that is supported: the newest in the environment of the tests, the others in one of their own."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.client_environments import ROOT, client_environment

OLDER = {"3.1": ("apache-airflow>=3.1,<3.2",), "3.2": ("apache-airflow>=3.2,<3.3", "fastapi<0.130")}
"""Requirements of the minors besides the newest. Airflow 3.2 itself starts no task with the newest FastAPI."""
NEWEST = "3.3"


@dataclass(frozen=True)
class AirflowMinor:
    """The Python that has it, and what its processes need to find this project there."""

    version: str = NEWEST
    python: Path = Path(sys.executable)
    environment: dict[str, str] = field(default_factory=dict)
    more_parts: tuple[str, ...] = ()
    """Processes besides those of every Airflow: `celery-worker`."""


def older_minor(version: str, installed: Path) -> AirflowMinor:
    """Airflow of an older minor, with the project from its unpacked wheel. Raises Unavailable."""
    return minor_with(version, OLDER[version], installed)


def minor_with(version: str, requirements: Sequence[str], installed: Path) -> AirflowMinor:
    """Airflow in an environment with these requirements, besides those of the project. Raises Unavailable."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    python = client_environment(f"airflow-{version.replace('.', '-')}", [*project["dependencies"], *requirements])
    return AirflowMinor(version, python, {"PYTHONPATH": str(installed)})
