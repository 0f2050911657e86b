"""The image that the project's own steps run in: one setting for components and for the bundled runtimes. Imports nothing of ours."""

import os

DEFAULT_IMAGE = "ghcr.io/trainwright/trainwright:0.1.0-python3.11"
"""What the bundled runtimes name, and what `image` gives where nothing else is set."""
VARIABLE = "TRAINWRIGHT_IMAGE"


def image() -> str:
    """The image that TRAINWRIGHT_IMAGE names, else the default one."""
    return os.environ.get(VARIABLE) or DEFAULT_IMAGE
