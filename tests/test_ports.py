"""Ports that tests use: two processes never get the same one, and one that is in use is not given out."""

from __future__ import annotations

import multiprocessing
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


@pytest.mark.medium
def test_processes_at_the_same_time_have_different_ports() -> None:
    both = multiprocessing.get_context("spawn").Barrier(2)
    answers = multiprocessing.get_context("spawn").Queue()
    processes = [multiprocessing.get_context("spawn").Process(target=_report_ports, args=(both, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    first, second = answers.get(timeout=60), answers.get(timeout=60)
    for process in processes:
        process.join(60)
    assert not set(first) & set(second)
    assert not {*first, *second} & set(free_ports(100))


def _report_ports(both: object, answers: object) -> None:
    ports = free_ports(50)
    both.wait(60)  # type: ignore[attr-defined]  # both hold their blocks now
    answers.put(ports)  # type: ignore[attr-defined]
