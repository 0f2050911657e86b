"""The folders of exports, as people write them on a command line."""

from __future__ import annotations

import typer

from trainwright.steps.data.places import folder_uri


def path_as_uri(text: str) -> str:
    """Callback of an argument: return the URI of a folder that may be written as a path of this machine."""
    try:
        return folder_uri(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
