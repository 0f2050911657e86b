"""The type of the fixture that makes requests of the page."""

from __future__ import annotations

from collections.abc import Callable

from trainwright.ui.call import Call

MakeCall = Callable[..., Call]
