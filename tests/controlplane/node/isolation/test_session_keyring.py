"""Keys in the session keyring of the login that started the cluster are out of reach: in containers, commands and plain processes."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest
from support.session_key import SEARCH, make_session_key
from support.supervised_containers import Runs, interpreter

from trainwright.controlplane.node.supervisor import exec_child, start_command
from trainwright.controlplane.node.supervisor.start_command import join_new_session_keyring


@pytest.fixture
def ticket() -> None:
    make_session_key()


@pytest.mark.medium
@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("user", [None, 1000])
def test_container_does_not_find_keys_of_the_operator(ticket: None, runs: Runs, isolated: bool, user: int | None) -> None:
    pod = {"securityContext": {"runAsUser": user}} if user else {}
    run = runs.start("/usr/bin/python3", "-I", "-c", SEARCH, isolated=isolated, pod=pod)
    assert run.output() == f"{errno.ENOKEY}\n"


@pytest.mark.medium
def test_command_in_container_does_not_find_keys_of_the_operator(ticket: None, runs: Runs) -> None:
    run = runs.start("sleep", "600")
    run.state()
    assert run.execute("/usr/bin/python3", "-I", "-c", SEARCH).stdout == f"{errno.ENOKEY}\n"


def test_command_beside_plain_process_does_not_find_keys_of_the_operator(ticket: None) -> None:
    command = [interpreter(None), "-S", "-E", "-P", str(exec_child.__file__), "/", "0", sys.executable, "-c", SEARCH]
    assert subprocess.run(command, capture_output=True, check=True).stdout == f"{errno.ENOKEY}\n".encode()


@pytest.mark.parametrize(
    ("joins", "reads", "refused"),
    [
        (0, 0, False),
        (errno.ENOSYS, 0, False),
        (errno.EPERM, errno.EPERM, False),  # a filter, which children keep
        (errno.EPERM, 0, True),
        (errno.EDQUOT, 0, True),
        (errno.EACCES, 0, True),
    ],
)
def test_only_kernels_without_keys_go_without_a_keyring(
    monkeypatch: pytest.MonkeyPatch, joins: int, reads: int, refused: bool
) -> None:
    monkeypatch.setattr(start_command, "_keyctl", lambda operation, *_: joins if operation == 1 else reads)
    monkeypatch.setattr(start_command.sys, "platform", "linux")
    if not refused:
        join_new_session_keyring()
        return
    with pytest.raises(OSError, match="join a new session keyring") as raised:
        join_new_session_keyring()
    assert raised.value.errno == joins
