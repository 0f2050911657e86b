"""Reading manifests that are named on the command line; `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from trainwright.api.documents import load_documents
from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj


def read_manifests(files: list[str]) -> list[Obj]:
    """All objects of all files, in order. Raises BadRequest naming the file that cannot be read."""
    objects: list[Obj] = []
    for file in files:
        loaded = load_documents(read_text(file), file)
        try:
            orjson.dumps(loaded)
        except TypeError as error:  # dates, binaries, numbers of more than 64 bits: YAML has them, the API has not
            raise BadRequest(f"{file}: holds a value that JSON does not have: {error}") from error
        objects.extend(loaded)
    return objects


def read_text(file: str) -> str:
    """The text of a file. Raises BadRequest naming it when it cannot be read."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise BadRequest(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: not UTF-8 text (byte {error.start})") from error
