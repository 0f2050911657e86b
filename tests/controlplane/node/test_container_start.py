"""What was begun twice and ended the process is not begun again."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.controlplane.node.cannot_start import CannotStart
from trainwright.controlplane.node.container_start import _counted


def test_container_that_has_ended_the_process_twice_is_refused(tmp_path: Path) -> None:
    tries = tmp_path / "pod" / "main.tries"
    with pytest.raises(KeyError), _counted(tries):  # an error does not end the process
        raise KeyError
    for _ in range(2):  # the process ends inside of the context
        with _counted(tries):
            left = tries.read_bytes()
        tries.write_bytes(left)
    with pytest.raises(CannotStart, match="has ended twice while it prepared this container") as error, _counted(tries):
        pass
    assert error.value.reason == "CreateContainerError"
