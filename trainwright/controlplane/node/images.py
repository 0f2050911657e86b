"""Images have no meaning without containers, but some carry a command of their own: what to run in place of it."""

from __future__ import annotations

_COMMANDS = {
    "ghcr.io/kubeflow/trainer/dataset-initializer": ["python", "-m", "trainwright.initializers", "dataset"],
    "ghcr.io/kubeflow/trainer/model-initializer": ["python", "-m", "trainwright.initializers", "model"],
}


def command_of_image(image: str) -> list[str] | None:
    """The command that an image would run when its container names none, or None for an image that we do not know."""
    name = image.partition("@")[0]
    head, _, tag = name.rpartition(":")
    return _COMMANDS.get(head if head and "/" not in tag else name)
