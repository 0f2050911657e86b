"""The constraints files have what the extra `airflow` allows, and what is tested under each minor of Airflow."""

from __future__ import annotations

import tomllib

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from support.airflow_minors import CONSTRAINTS, NEWEST, OLDER, pins
from support.client_environments import ROOT

MINORS = (*OLDER, NEWEST)


def allowed() -> SpecifierSet:
    """The versions that the extra allows."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    (requirement,) = map(Requirement, extras["airflow"])
    return requirement.specifier


def test_each_minor_of_the_extra_has_a_file_that_pins_it() -> None:
    assert sorted(path.name for path in CONSTRAINTS.glob("*.txt")) == [f"airflow-{minor}.txt" for minor in MINORS]
    for minor in MINORS:
        found = {requirement.name: requirement.specifier for requirement in map(Requirement, pins(minor))}
        (pin,) = found["apache-airflow"]
        assert pin.operator == "=="
        assert pin.version.startswith(f"{minor}.")
        assert pin.version in allowed()
    assert [minor for minor in ("3.0", "3.1", "3.2", "3.3", "3.4") if f"{minor}.0" in allowed()] == list(MINORS)


def test_installation_names_every_file() -> None:
    text = (ROOT / "docs/install.md").read_text("utf-8")
    assert all(f"deploy/constraints/airflow-{minor}.txt" in text for minor in MINORS)
