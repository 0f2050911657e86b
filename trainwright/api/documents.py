"""Manifests: YAML (or JSON) text with any number of documents, parsed as the Kubernetes tools do."""

from __future__ import annotations

import contextlib
from typing import Any

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj
from trainwright.text.text_input import NotJson, Unreadable, read_json
from trainwright.text.yaml_reader import read_yaml


def load_documents(text: str | bytes, source: str = "input") -> list[Obj]:
    """Return the objects of a manifest, in order; empty documents are skipped, and a `List` is replaced by its items.

    Raises BadRequest, which names `source`, for text that cannot be parsed, with line and column, and for a document that is not
    an object.
    """
    objects: list[Obj] = []
    for index, document in enumerate(_values(text, source)):
        if document is None:
            continue
        if not isinstance(document, dict):
            raise BadRequest(f"{source}: document {index + 1} is a {type(document).__name__}, not an object")
        if document.get("kind") == "List":
            items = document.get("items") or []
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise BadRequest(f"{source}: items: must be a list of objects")
            objects.extend(items)
        else:
            objects.append(document)
    return objects


def _values(text: str | bytes, source: str) -> list[Any]:
    """Parse JSON first, as kubectl does: it may contain escapes that YAML does not know."""
    try:
        if text[:1] in ("{", b"{"):
            with contextlib.suppress(NotJson):  # it may be YAML in flow style
                return [read_json(text, source)]
        return read_yaml(text, source)
    except Unreadable as error:
        raise BadRequest(error.message) from error
