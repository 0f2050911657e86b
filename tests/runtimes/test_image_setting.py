"""One setting chooses the image of components and of the project's own runtimes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from trainwright import __version__
from trainwright.cli.app import app
from trainwright.runtimes import bundled_runtime, bundled_runtimes
from trainwright.runtimes.image import image

OURS = {
    "trl-dpo": ["launcher", "trainer"],
    "trl-kto": ["launcher", "trainer"],
    "trl-sft": ["launcher", "trainer"],
    "causal-lm-evaluation": ["trainer"],
    "workspace-step": ["launcher"],
}
"""Our runtimes, and which of our images they use."""
ONE = "registry.example.com/trainwright@sha256:abc"
EACH = "registry.example.com:5000/ml/{image}:1"


def images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from [part] if key == "image" and isinstance(part, str) else images(part)
    elif isinstance(value, list):
        for part in value:
            yield from images(part)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINWRIGHT_IMAGE", raising=False)


def images_of(name: str, setting: str = "") -> list[str]:
    return sorted(set(images(bundled_runtime(name, setting))))


@pytest.mark.parametrize("name", OURS)
def test_our_runtimes_name_the_default_images(name: str) -> None:
    assert images_of(name) == [f"ghcr.io/trainwright/{each}:{__version__}" for each in OURS[name]]


@pytest.mark.parametrize("name", OURS)
def test_the_setting_takes_their_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", ONE)
    assert images_of(name) == [ONE]
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", EACH)
    assert images_of(name) == [f"registry.example.com:5000/ml/{each}:1" for each in OURS[name]]
    assert images_of(name, ONE) == [ONE], "what is given comes before the environment"


def test_only_images_change() -> None:
    def without_images(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_images(part) for key, part in value.items() if key != "image"}
        return [without_images(part) for part in value] if isinstance(value, list) else value

    assert [without_images(runtime) for runtime in bundled_runtimes(ONE)] == list(map(without_images, bundled_runtimes()))


def test_images_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def others() -> list[Any]:
        return [runtime for runtime in bundled_runtimes() if runtime["metadata"]["name"] not in OURS]

    plain = others()
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", ONE)
    assert others() == plain


def test_a_caller_may_change_what_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", ONE)
    for runtime in bundled_runtimes():
        runtime["spec"].clear()
        runtime["metadata"]["labels"] = None
    assert all(runtime["spec"] and runtime["metadata"].get("labels") for runtime in bundled_runtimes())


def test_an_empty_setting_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", "")
    assert image("launcher") == f"ghcr.io/trainwright/launcher:{__version__}"


@pytest.mark.parametrize("by_option", [True, False])
def test_the_command_shows_the_chosen_image(monkeypatch: pytest.MonkeyPatch, by_option: bool) -> None:
    if by_option:
        command = ["runtimes", "show", "trl-sft", "--image", EACH]
    else:
        monkeypatch.setenv("TRAINWRIGHT_IMAGE", EACH)
        command = ["runtimes", "show", "trl-sft"]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0
    assert "image: registry.example.com:5000/ml/trainer:1" in shown.output
    assert "image: registry.example.com:5000/ml/launcher:1" in shown.output
    assert "ghcr.io" not in shown.output


@pytest.mark.medium
def test_components_take_the_same_image() -> None:
    code = "from trainwright.components import image; print(image.IMAGE)"
    env = {"TRAINWRIGHT_IMAGE": EACH}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "registry.example.com:5000/ml/launcher:1"


def test_importing_the_setting_imports_nothing_else_of_ours() -> None:
    code = "import sys, trainwright.runtimes.image as i\nprint(*(m for m in sys.modules if m.startswith('trainwright')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["trainwright", "trainwright.runtimes", "trainwright.runtimes.image"]
