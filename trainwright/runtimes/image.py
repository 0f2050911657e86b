"""The images of the project's own steps, one setting for components and runtimes. Imports only the version from the package."""

from __future__ import annotations

import os
from typing import Literal

from trainwright import __version__

ImageName = Literal["launcher", "trainer", "controller"]
"""The images of deploy/images: for steps the library with kfp and the stores, and the same with torch and TRL; for the guard and the
controller the library alone."""
PLACEHOLDERS: dict[str, ImageName] = {"trainwright-launcher": "launcher", "trainwright-trainer": "trainer"}
"""Images in the catalogue of runtimes, and which image each stands for."""
DEFAULT_IMAGE = f"ghcr.io/trainwright/{{image}}:{__version__}"
VARIABLE = "TRAINWRIGHT_IMAGE"
_NAME = "{image}"


def image(name: ImageName, setting: str = "") -> str:
    """Return the image of steps of a kind.

    `setting`, else TRAINWRIGHT_IMAGE, else the default, is an image for all steps, or has `{image}` in the place of the name:
    `registry.example.com/ml/{image}:1`.
    """
    return (setting or os.environ.get(VARIABLE) or DEFAULT_IMAGE).replace(_NAME, name)
