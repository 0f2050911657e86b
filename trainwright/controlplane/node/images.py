"""Commands of known images. Without containers images cannot be run, so the node runs an equivalent local command."""

from __future__ import annotations

# The target is explicit, so that the node replaces it by the mounted folder.
_INITIALIZER = ["python", "-m", "trainwright.initializers"]
_COMMANDS = {
    "ghcr.io/kubeflow/trainer/dataset-initializer": [*_INITIALIZER, "dataset", "--target", "/workspace/dataset"],
    "ghcr.io/kubeflow/trainer/model-initializer": [*_INITIALIZER, "model", "--target", "/workspace/model"],
}


def command_of_image(image: str) -> list[str] | None:
    """Return the default command of an image, or None for an unknown image."""
    name = image.partition("@")[0]
    head, _, tag = name.rpartition(":")
    return _COMMANDS.get(head if head and "/" not in tag else name)
