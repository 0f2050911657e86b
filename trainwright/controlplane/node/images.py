"""Images have no meaning without containers, but some carry a command of their own: what to run in place of it."""

from __future__ import annotations

# The target is named, so that the node puts the folder of the mount in its place.
_INITIALIZER = ["python", "-m", "trainwright.initializers"]
_COMMANDS = {
    "ghcr.io/kubeflow/trainer/dataset-initializer": [*_INITIALIZER, "dataset", "--target", "/workspace/dataset"],
    "ghcr.io/kubeflow/trainer/model-initializer": [*_INITIALIZER, "model", "--target", "/workspace/model"],
}


def command_of_image(image: str) -> list[str] | None:
    """The command that an image would run when its container names none, or None for an image that we do not know."""
    name = image.partition("@")[0]
    head, _, tag = name.rpartition(":")
    return _COMMANDS.get(head if head and "/" not in tag else name)
