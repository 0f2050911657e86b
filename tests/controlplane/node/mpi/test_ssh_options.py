"""Command lines of ssh and sshd, as mpirun and the images of Trainer write them."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.mpi.ssh_options import OptionError, SshCommand, parse_ssh, sshd_configuration, sshd_port


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("host true", SshCommand("host", "true")),
        ("-o ConnectionAttempts=10 host prted -mca x y", SshCommand("host", "prted -mca x y", attempts=10)),
        ("-x -q me@host.job -p 2300 sh -c -l", SshCommand("host.job", "sh -c -l", 2300)),
        ("-nxp2300 host true", SshCommand("host", "true", 2300, reads_input=False)),
        ("-o Port=23 -oStrictHostKeyChecking=no -i key host -- a -b", SshCommand("host", "a -b", 23)),
        ("-o connectionattempts=3 -- host a", SshCommand("host", "a", attempts=3)),
    ],
)
def test_ssh_commands_are_read_as_ssh_reads_them(line: str, expected: SshCommand) -> None:
    assert parse_ssh(line.split()) == expected


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "no host"),
        ("host", "no command"),
        ("-p", "-p needs a value"),
        ("-p x host true", "expected a number"),
        ("-p 65536 host true", "expected a number"),
        ("-o ConnectionAttempts=0 host true", "expected a number"),
        ("-p ٣ host true", "expected a number"),
    ],
)
def test_parse_ssh_refuses_invalid_command_lines(line: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse_ssh(line.split())


def test_sshd_options() -> None:
    stock = ["-De", "-f", "/home/mpiuser/.sshd_config"]
    assert (sshd_port(stock), sshd_configuration(stock)) == (2222, "/home/mpiuser/.sshd_config")
    assert sshd_port(["-D", "-p", "2300"]) == 2300
    assert sshd_port(["-De", "-o", "Port 2300"]) == 2300
    assert sshd_configuration(["-Def/etc/x"]) == "/etc/x"
    assert sshd_configuration(["-D"]) == ""


@given(st.lists(st.text(string.ascii_letters + "-=01 @", max_size=6), max_size=6))
def test_property_a_command_is_the_end_of_the_line(words: list[str]) -> None:
    try:
        found = parse_ssh(words)
    except OptionError:
        return
    assert found.command == " ".join(words[-(len(words) - _start(words, found)) :])


def _start(words: list[str], found: SshCommand) -> int:
    return next(at for at in range(len(words)) if " ".join(words[at:]) == found.command)
