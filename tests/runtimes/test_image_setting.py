"""One setting chooses the image of components and of the project's own runtimes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from trainwright.cli.app import app
from trainwright.runtimes import bundled_runtime, bundled_runtimes
from trainwright.runtimes.image import DEFAULT_IMAGE, image

OURS = ("trl-sft", "causal-lm-evaluation", "workspace-step")
OTHER = "registry.example.com/trainwright@sha256:abc"


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


@pytest.mark.parametrize("name", OURS)
def test_our_runtimes_name_the_default_image(name: str) -> None:
    assert set(images(bundled_runtime(name))) == {DEFAULT_IMAGE}


@pytest.mark.parametrize("name", OURS)
def test_the_setting_takes_its_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bundled_runtime(name)
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", OTHER)
    chosen = bundled_runtime(name)
    assert chosen == json.loads(json.dumps(plain).replace(DEFAULT_IMAGE, OTHER))
    assert set(images(chosen)) == {OTHER}


def test_images_of_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def others() -> list[Any]:
        return [runtime for runtime in bundled_runtimes() if runtime["metadata"]["name"] not in OURS]

    plain = others()
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", OTHER)
    assert others() == plain


def test_a_caller_may_change_what_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", OTHER)
    for runtime in bundled_runtimes():
        runtime["spec"].clear()
        runtime["metadata"]["labels"] = None
    assert all(runtime["spec"] and runtime["metadata"].get("labels") for runtime in bundled_runtimes())


def test_an_empty_setting_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", "")
    assert image() == DEFAULT_IMAGE


def test_the_command_shows_the_chosen_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWRIGHT_IMAGE", OTHER)
    shown = CliRunner().invoke(app, ["runtimes", "show", "trl-sft"])
    assert shown.exit_code == 0
    assert f"image: {OTHER}" in shown.output
    assert DEFAULT_IMAGE not in shown.output


@pytest.mark.medium
def test_components_take_the_same_image() -> None:
    code = "from trainwright.components import image; print(image.IMAGE)"
    env = {"TRAINWRIGHT_IMAGE": OTHER}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == OTHER


def test_importing_the_setting_imports_nothing_else_of_ours() -> None:
    code = "import sys, trainwright.runtimes.image as i\nprint(*(m for m in sys.modules if m.startswith('trainwright')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["trainwright", "trainwright.runtimes", "trainwright.runtimes.image"]
