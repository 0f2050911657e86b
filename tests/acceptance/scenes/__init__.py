"""All scenes, by group and name. A module is a group; a new scene is an entry in its `SCENES`."""

from __future__ import annotations

from acceptance.scene import Scene
from acceptance.scenes import (
    api_server,
    checkpoints,
    controllers,
    data,
    failures,
    fine_tuning,
    jobset_mode,
    load,
    logs,
    missing_rights,
    namespaces,
    orchestrators,
    stopping,
    trainings,
)

GROUPS = {
    "API server": api_server.SCENES,
    "JobSet mode": jobset_mode.SCENES,
    "checkpoints": checkpoints.SCENES,
    "controllers": controllers.SCENES,
    "data": data.SCENES,
    "failures": failures.SCENES,
    "fine-tuning": fine_tuning.SCENES,
    "load": load.SCENES,
    "logs": logs.SCENES,
    "missing right": missing_rights.SCENES,
    "namespaces": namespaces.SCENES,
    "orchestrators": orchestrators.SCENES,
    "stopping": stopping.SCENES,
    "trainings": trainings.SCENES,
}
SCENES: dict[str, Scene] = {f"{group}: {scene.name}": scene for group, scenes in GROUPS.items() for scene in scenes}
