"""Whether the long rounds of tests run: `make chaos` and `make conformance` play them all, CI the shortest that proves the same."""

from __future__ import annotations

import os

IS_LONG = bool(os.environ.get("TRAINWRIGHT_CHAOS"))
