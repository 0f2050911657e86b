"""Converts any text to a valid label value, with a digest suffix if the text had to be changed. Pure."""

from __future__ import annotations

import hashlib
import re


def label_value(text: str) -> str:
    """Return the text as a label value: allowed characters, at most 63, alphanumeric at both ends; a changed value gets a digest."""
    cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    if len(cleaned) <= 63 and cleaned == text:
        return cleaned
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{cleaned[:54].rstrip('-_.')}-{digest}".lstrip("-")
