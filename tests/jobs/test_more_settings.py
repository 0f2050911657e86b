"""Tests that settings in one structure join those that came as parameters."""

from __future__ import annotations

from typing import Any

import pytest

from trainwright.jobs.request.more_settings import COMPONENT_DEFAULTS, with_more
from trainwright.jobs.request.settings_table import TABLE

DEFAULTS = {name: setting.default for name, setting in TABLE.items()}


@pytest.mark.parametrize("defaults", [COMPONENT_DEFAULTS, dict.fromkeys(COMPONENT_DEFAULTS)])
def test_defaults_of_an_edge_do_not_clash_with_more(defaults: dict[str, Any]) -> None:
    more = {"waiter_lease_seconds": 700, "run_timeout_seconds": 60}
    assert with_more(defaults, more, DEFAULTS) == more


def test_setting_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="run_timeout_seconds: given twice"):
        with_more({"run_timeout_seconds": 604800}, {"run_timeout_seconds": 60}, DEFAULTS)
