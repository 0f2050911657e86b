"""How often Python looks for cycles of garbage in the process of a control plane.

What it makes are trees of JSON by the thousand: no cycles among them, and all of them looked at again and again. With the usual
settings that was a fifth of the time of a busy control plane.
"""

from __future__ import annotations

import gc

_YOUNG = 20_000
"""Objects that are made before the youngest are looked at; 700 by default."""


def tune_gc() -> None:
    """To be called once everything is loaded: that is never looked at again. For the whole process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
