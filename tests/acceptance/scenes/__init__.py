"""All scenes, by group and name. A module is a group; a new scene is an entry in its `SCENES`."""

from __future__ import annotations

from acceptance.scene import Scene
from acceptance.scenes import checkpoints, data, failures, logs, stopping, trainings

GROUPS = {
    "checkpoints": checkpoints.SCENES,
    "data": data.SCENES,
    "failures": failures.SCENES,
    "logs": logs.SCENES,
    "stopping": stopping.SCENES,
    "trainings": trainings.SCENES,
}
SCENES: dict[str, Scene] = {f"{group}: {scene.name}": scene for group, scenes in GROUPS.items() for scene in scenes}
