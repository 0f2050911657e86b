"""The folder of what upstream ships and what was recorded elsewhere, which is not in the repository: TRAINWRIGHT_SHARED, or ../shared.

Tests that need a part of it that is missing are skipped, and tests/tiers.py counts them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import tiers

PARTS = {
    "upstream": "the CRDs, runtimes and examples of upstream",
    "goldens/kubelet": "pods recorded on a kubelet",
    "cases": "jobs and datasets of users",
}
"""What is compared with each part."""
REASON = re.compile(r"not compared with (.+?): ")


def shared_path(name: str) -> Path:
    """A path in the folder, whether or not it exists. May be used when tests are collected."""
    return (Path(os.environ.get("TRAINWRIGHT_SHARED") or tiers.ROOT.parent / "shared") / name).absolute()


def reason_without(name: str) -> str:
    """Why tests that read this path of the folder are skipped where it is missing."""
    what = next(words for part, words in PARTS.items() if f"{name}/".startswith(f"{part}/"))
    return f"not compared with {what}: {shared_path(name)} is missing; set TRAINWRIGHT_SHARED to a folder that has {name}"


def shared_folder(name: str) -> Path:
    """A folder in it. Skips the test if it is missing."""
    path = shared_path(name)
    if not path.is_dir():
        pytest.skip(reason_without(name))
    return path


def what_was_not_compared(reason: str) -> str:
    """What a test would have been compared with that was skipped for this reason; empty if it is another one."""
    found = REASON.search(reason)
    return found[1] if found else ""
