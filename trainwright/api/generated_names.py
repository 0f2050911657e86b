"""The random suffixes that Kubernetes appends to a `generateName`, also for the pods of a Job."""

from __future__ import annotations

import re

from trainwright.api.objects import Obj

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, to avoid words, and no digits that look like letters; as in Kubernetes."""
SUFFIX_LENGTH = 5
_MAX_LENGTH = 63
_SAMPLE_SUFFIX = "xxxxx"
_SUFFIX = re.compile(rf"-[{SUFFIX_LETTERS}]{{{SUFFIX_LENGTH}}}\b")


def generated_name(prefix: str, suffix: str) -> str:
    """Return the name for a `generateName`, cut to the 63 characters of a DNS label."""
    return prefix[: _MAX_LENGTH - SUFFIX_LENGTH] + suffix


def with_sample_name(obj: Obj) -> Obj:
    """Return the object with a name to validate: a sample of the one that a server would generate, if it has none."""
    metadata = obj.get("metadata") or {}
    prefix = metadata.get("generateName")
    if not metadata.get("name") and isinstance(prefix, str) and prefix:
        metadata = {**metadata, "name": generated_name(prefix, _SAMPLE_SUFFIX)}
    return {**obj, "metadata": metadata}


def without_suffixes(text: str) -> str:
    """Return a text without the random suffixes of the names in it, to compare texts about objects that were created again."""
    return _SUFFIX.sub("", text)
