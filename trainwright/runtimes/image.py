"""The image of the project's own steps, one setting for components and bundled runtimes. Imports nothing from the package."""

import os

DEFAULT_IMAGE = "ghcr.io/trainwright/trainwright:0.1.0-python3.11"
"""The image in the bundled runtimes, and the default of `image`."""
VARIABLE = "TRAINWRIGHT_IMAGE"


def image() -> str:
    """Return the image in TRAINWRIGHT_IMAGE, else the default."""
    return os.environ.get(VARIABLE) or DEFAULT_IMAGE
