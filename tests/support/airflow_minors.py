"""Airflow in each minor version that is supported: the newest in the environment of the tests, the others in one of their own."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from support.built_wheel import unpacked_wheel
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


def older_minor(version: str, installed: Path) -> AirflowMinor:
    """Airflow of an older minor, with the project from its unpacked wheel. Raises Unavailable."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [*project["dependencies"], *OLDER[version]]
    python = client_environment(f"airflow-{version.replace('.', '-')}", requirements)
    return AirflowMinor(version, python, {"PYTHONPATH": str(installed)})


def minor_under_test(folder: Path) -> AirflowMinor:
    """The minor that TRAINWRIGHT_AIRFLOW names, the newest by default; `folder` is for the wheel. Raises Unavailable, KeyError."""
    version = os.environ.get("TRAINWRIGHT_AIRFLOW") or NEWEST
    return AirflowMinor() if version == NEWEST else older_minor(version, unpacked_wheel(folder))
