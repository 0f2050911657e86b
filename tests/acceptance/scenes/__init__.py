"""All scenes, by group and name. A module is a group; a new scene is an entry in its `SCENES`."""

from __future__ import annotations

from acceptance.scene import Scene
from acceptance.scenes import failures, trainings

GROUPS: dict[str, list[Scene]] = {"failures": failures.SCENES, "trainings": trainings.SCENES}
SCENES: dict[str, Scene] = {f"{group}: {scene.name}": scene for group, scenes in GROUPS.items() for scene in scenes}
