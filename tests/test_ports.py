"""Ports that tests use: two processes never get the same one, and one that is in use is not given out."""

from __future__ import annotations

import socket

import pytest
from support.ports import BLOCK, free_port, free_ports


def test_ports_of_one_process_differ() -> None:
    assert len(set(free_ports(100))) == 100


def test_a_port_in_use_is_not_returned() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        assert taken.getsockname()[1] not in {free_port() for _ in range(BLOCK)}


def test_more_ports_than_a_process_has_are_an_error() -> None:
    with pytest.raises(AssertionError, match="fewer than"):
        free_ports(BLOCK)
