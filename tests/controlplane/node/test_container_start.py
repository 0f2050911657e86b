"""What was begun twice and ended the process is not begun again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainwright.controlplane.node.container_image import CannotStart
from trainwright.controlplane.node.container_start import ContainerStart, _counted
from trainwright.controlplane.node.lifecycle.container_state import ContainerState, Role


class Prepared(Exception):
    """The preparation was begun."""


class Starting(ContainerStart):
    """A container whose image is there, and whose preparation a test ends."""

    def __init__(self, folder: Path):
        services: Any = SimpleNamespace(images=None, environments=None)
        super().__init__({"name": "main"}, services, folder)
        self._image: Any = SimpleNamespace(find=lambda *_: None)

    def context(self, *_: Any) -> Any:
        raise Prepared


def test_container_that_has_ended_the_process_twice_is_refused_with_the_way_out(tmp_path: Path) -> None:
    launch: Any = SimpleNamespace(container=ContainerState("main", Role.MAIN), attempt=0)
    tries, events = tmp_path / "main.tries", []
    with pytest.raises(Prepared):  # an error does not end the process
        Starting(tmp_path).start({"spec": {}}, launch, events.append)
    for _ in range(2):  # the process ends inside of the context
        with _counted(tries):
            left = tries.read_bytes()
        assert not tries.exists()
        tries.write_bytes(left)
    with pytest.raises(CannotStart, match="has ended twice while it prepared this container") as error:
        Starting(tmp_path).start({"spec": {}}, launch, events.append)
    assert error.value.reason == "CreateContainerError"
    assert [event.reason for event in events] == ["Failed"]
    assert "if something else ended it, delete the pod" in events[0].message
