"""Reads manifests from files on the command line; `-` is standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson

from trainwright.api.documents import load_documents
from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj


def read_manifests(files: list[str]) -> list[Obj]:
    """Return all objects of all files, in order. Raises BadRequest naming a file that cannot be read."""
    objects: list[Obj] = []
    for file in files:
        loaded = load_documents(read_text(file), file)
        try:
            orjson.dumps(loaded)
        except TypeError as error:  # dates, binary data, integers above 64 bits: supported by YAML, but not by the API
            raise BadRequest(f"{file}: contains a value that JSON does not support: {error}") from error
        objects.extend(loaded)
    return objects


def read_text(file: str) -> str:
    """Return the text of a file. Raises BadRequest naming it if it cannot be read."""
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise BadRequest(f"{file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: not UTF-8 text (byte {error.start})") from error
