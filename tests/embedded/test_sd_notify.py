"""What systemd is sent, on a socket as systemd's."""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from trainwright.embedded.process_setup import ServiceManager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_assignments_are_one_datagram(tmp_path: Path, is_abstract: bool) -> None:
    name = str(tmp_path / "notify")
    if is_abstract and not Path("/proc/net/unix").exists():
        pytest.skip("only Linux has abstract addresses")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(5)
        systemd.bind(f"\0{name}" if is_abstract else name)
        environment = {"NOTIFY_SOCKET": f"@{name}" if is_abstract else name, "PATH": "/bin"}
        ServiceManager.take_from(environment).notify("READY=1", "STATUS=Serving https://127.0.0.1:1")
        assert systemd.recv(100) == b"READY=1\nSTATUS=Serving https://127.0.0.1:1"
    assert environment == {"PATH": "/bin"}, "child processes do not report for this one"


def test_without_systemd_nothing_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager.take_from({}).notify("READY=1")
    assert caplog.records == []


def test_a_manager_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ServiceManager(str(tmp_path / "nobody")).notify("READY=1")
    assert "service_manager_not_notified" in caplog.text
