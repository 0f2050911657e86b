"""Every scene, as a test: `make acceptance`. Those marked `quick` are part of `make test-slow`."""

from __future__ import annotations

import pytest

from acceptance.means import MEANS
from acceptance.scene import Scene
from acceptance.scenes import SCENES
from acceptance.stage import Stage

SECONDS = {"quick": 300, "": 600, "long": 1800}
"""Until a scene is given up."""


def _parameter(name: str, scene: Scene) -> object:
    marks = [pytest.mark.acceptance, *(getattr(pytest.mark, mark) for mark in scene.marks)]
    if "quick" in scene.marks:
        marks.append(pytest.mark.slow)
    marks.append(pytest.mark.timeout(SECONDS[scene.marks[0] if scene.marks else ""]))
    if scene.fault:
        marks.append(pytest.mark.xfail(reason=scene.fault, raises=AssertionError, strict=False))
    return pytest.param(scene, id=name, marks=marks)


@pytest.mark.parametrize("scene", [_parameter(name, scene) for name, scene in SCENES.items()])
def test_scene(scene: Scene, stage: Stage) -> None:
    scene.play(stage)


def test_names_of_scenes_tell_their_objects_apart() -> None:
    slugs = [scene.slug for scene in SCENES.values()]
    assert len(set(slugs)) == len(slugs)


def test_needs_of_scenes_are_known_means() -> None:
    assert {need for scene in SCENES.values() for need in scene.needs} <= set(MEANS)
