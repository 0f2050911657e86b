"""Definitions of environments: those that come with the package, and a home's file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from trainwright.controlplane.environments import EnvironmentsFileError
from trainwright.controlplane.environments.definition import bundled_environments, environments_of, parse_environments, read_lock

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.mark.parametrize("name", [each.name for each in bundled_environments()])
def test_lock_has_a_version_of_each_requirement(name: str) -> None:
    (definition,) = (each for each in bundled_environments() if each.name == name)
    pins = read_lock(definition.lock)
    for text in (*definition.requirements, *definition.gpu_requirements):
        wanted = Requirement(text)
        versions = [pin.version for pin in pins if pin.name == canonicalize_name(wanted.name)]
        assert versions, f"{text}: make environment-locks"
        assert all(map(wanted.specifier.contains, versions)), f"{text}: make environment-locks"


@pytest.mark.parametrize("name", [each.name for each in bundled_environments()])
def test_lock_has_hashes_of_each_package(name: str) -> None:
    (definition,) = (each for each in bundled_environments() if each.name == name)
    pins = read_lock(definition.lock)
    assert [str(pin) for pin in pins if not pin.hashes] == []
    builds = [str(pin.version) for pin in pins if pin.name == "torch"]
    assert builds in ([], ["2.13.0", "2.13.0+cpu"])
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for pin in pins for each in pin.hashes)


def test_torch_environment_has_what_the_trainer_image_has() -> None:
    (torch,) = (each for each in bundled_environments() if each.name == "torch")
    wanted = {*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["train"]}
    assert {*torch.requirements} == wanted


def test_environments_of_the_home_come_first_and_replace_bundled_ones(tmp_path: Path) -> None:
    (tmp_path / "environments.yaml").write_text("environments: [{name: jax, images: [mine], requirements: [jax==1]}]")
    found = environments_of(tmp_path)
    assert (found[0].name, found[0].images, found[0].lock) == ("jax", ("mine",), "")
    assert [each.name for each in found].count("jax") == 1
    assert {each.name for each in found} == {each.name for each in bundled_environments()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "Input should be a valid dictionary"),
        ("environments: [{", "not valid YAML"),
        ("environments: []\n---\nenvironments: []", "expected one YAML document"),
        ("environment: []", "environment: Extra inputs are not permitted"),
        ("environments: [{name: a}]", r"environments\[0\]\.requirements: Field required"),
        ("environments: [{name: a, requirements: []}]", r"environments\[0\]\.requirements: "),
        ("environments: [{name: a/b, requirements: [x]}]", r"environments\[0\]\.name: "),
        ("environments: [{name: .., requirements: [x]}]", r"environments\[0\]\.name: "),
        ("environments: [{name: a, requirements: ['x y z']}]", r"environments\[0\]\.requirements\[0\]: not a requirement of pip"),
        ("environments: [{name: a, requirements: [--index-url=x]}]", r"environments\[0\]\.requirements\[0\]: not a requirement"),
        ("environments: [{name: a, requirements: [x], image: b}]", r"environments\[0\]\.image: Extra inputs"),
        ("environments: [{name: a, requirements: [x], env: {A: 1}}]", r"environments\[0\]\.env\.A: "),
        (
            "environments: [{name: a, requirements: [x], lock: 'x>=1'}]",
            r"environments\[0\]\.lock: not a package with its version",
        ),
        ("environments: [{name: a, requirements: [x]}, {name: a, requirements: [y]}]", "two environments are named a"),
    ],
)
def test_invalid_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(EnvironmentsFileError, match=f"^file: .*{message}"):
        parse_environments(text.encode(), "file")
