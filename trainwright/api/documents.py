"""Manifests: YAML (or JSON) text with any number of documents, parsed as the Kubernetes tools do."""

from __future__ import annotations

from typing import Any

import yaml

from trainwright.api.errors import BadRequest
from trainwright.api.objects import Obj

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ManifestLoader(_Base):  # type: ignore[misc]
    """YAML 1.1 without timestamps: `2026-11-20` stays a string, as in JSON."""


ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}


def load_documents(text: str | bytes, source: str = "input") -> list[Obj]:
    """Return the objects of a manifest, in order; empty documents are skipped, and a `List` is replaced by its items.

    Raises BadRequest naming `source` (and the line) for invalid YAML, or a document that is not an object.
    """
    try:
        documents = [document for document in yaml.load_all(text, ManifestLoader) if document is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        raise BadRequest(f"{where}: not YAML: {getattr(error, 'problem', None) or error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):  # a tag that does not match its value
        raise BadRequest(f"{source}: not YAML") from None
    objects: list[Obj] = []
    for index, document in enumerate(documents):
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
