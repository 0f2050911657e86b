"""Helm, as the official library in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.client_environments import ROOT, Unavailable, client_environment

CHART = ROOT / "deploy" / "chart"


class HelmFailed(Exception):
    """What Helm said."""


class Helm:
    def __init__(self, python: Path):
        self._python = python

    def __call__(self, do: str, values: dict[str, Any] | None = None, **more: str) -> Any:
        """The answer of Helm. Raises HelmFailed."""
        request = {"do": do, "chart": str(CHART), "values": values or {}, **more}
        program = str(Path(__file__).with_name("helm_program.py"))
        done = subprocess.run(
            [str(self._python), "-I", program], input=json.dumps(request), capture_output=True, text=True, timeout=120, check=True
        )
        answered = json.loads(done.stdout.splitlines()[-1])
        if "error" in answered:
            raise HelmFailed(answered["error"])
        return answered["answer"]

    def objects(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        """The objects of a release with these values."""
        rendered = self("render", values)
        texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
        return [obj for text in texts for obj in yaml.safe_load_all(text) if obj]


@pytest.fixture(scope="session")
def helm() -> Helm:
    try:
        return Helm(client_environment("helm", ["helm-python-sdk>=0.2.2,<0.3"]))
    except Unavailable as error:
        pytest.skip(str(error))
