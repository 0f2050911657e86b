"""Any text as the value of a label, told apart from others where it has to be changed. Pure."""

from __future__ import annotations

import hashlib
import re


def label_value(text: str) -> str:
    """A text as a label value: allowed characters, at most 63, ends alphanumeric; told apart by digest when cut."""
    cleaned = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    if len(cleaned) <= 63 and cleaned == text:
        return cleaned
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{cleaned[:54].rstrip('-_.')}-{digest}".lstrip("-")
