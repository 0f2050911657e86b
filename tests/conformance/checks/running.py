"""Runs the checks of a script one after another and prints what became of each, a JSON line apiece.

Standard library alone: this runs in environments that hold one client library and nothing of ours.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

PREFIX = "check_"


class CannotBeTold(Exception):
    """What a check needs is not there on this cluster; the message says what. No failure."""


def main(module: ModuleType, make_context: Callable[[str], Any]) -> None:
    """Run every `check_...` of the module with the context made from `--kubeconfig`; `context.close()` ends it."""
    parser = argparse.ArgumentParser(description=module.__doc__)
    parser.add_argument("--kubeconfig", required=True)
    context = make_context(parser.parse_args().kubeconfig)
    try:
        for name, check in vars(module).items():
            if name.startswith(PREFIX):
                print(json.dumps({"check": name.removeprefix(PREFIX), **_outcome(check, context)}), flush=True)
    finally:
        context.close()


def _outcome(check: Callable[[Any], None], context: Any) -> dict[str, str]:
    try:
        check(context)
    except CannotBeTold as reason:
        return {"outcome": "left out", "text": str(reason)}
    except Exception:  # the harness: whatever a check raises is its result
        return {"outcome": "failed", "text": traceback.format_exc()}
    return {"outcome": "same", "text": ""}


def only_here() -> ModuleType:
    """The module that was started."""
    return sys.modules["__main__"]
