"""Airflow in each minor version that is supported: the newest in the environment of the tests, the others in one of their own."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.client_environments import ROOT, client_environment

OLDER, NEWEST = ("3.1", "3.2"), "3.3"
CONSTRAINTS = ROOT / "deploy/constraints"


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
    return minor_with(version, pins(version), installed)


def pins(version: str) -> list[str]:
    """What a minor is installed with: the requirements of its constraints file."""
    lines = (CONSTRAINTS / f"airflow-{version}.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def minor_with(version: str, requirements: Sequence[str], installed: Path) -> AirflowMinor:
    """Airflow in an environment with these requirements, besides those of the project. Raises Unavailable."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    python = client_environment(f"airflow-{version.replace('.', '-')}", [*project["dependencies"], *requirements])
    return AirflowMinor(version, python, {"PYTHONPATH": str(installed)})
