"""Hosts whose folders have mounts below them, as in containers and with disks of their own: an overlay shows none of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.supervised_containers import Runs

pytestmark = pytest.mark.medium
HOST = """
set -e
mount -t tmpfs none /etc/ssl; echo certificate > /etc/ssl/own
echo 127.0.0.1 me > "$1/hosts"; mount --bind "$1/hosts" /etc/hosts
mkdir -p "$1/disk/deep"; echo deep > "$1/disk/deep/file"; mount --bind "$1/disk" /usr/share/doc
rm -f "$1/hosts.unused"
shift; exec "$@"
"""
LOOK = (
    "cat /etc/ssl/own /etc/hosts /usr/share/doc/deep/file; test -s /etc/passwd && echo users; readlink /etc/mtab;"
    " echo new > /etc/new && cat /etc/new; echo changed >> /etc/passwd && echo changed; ls /usr/bin/env /var/lib -d;"
    " mkdir /usr/local/made 2>/dev/null; echo end"
)


@pytest.fixture
def prefix(runs: Runs) -> list[str]:
    """A command in a mount namespace with further mounts."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    namespaces = ["--mount"] if runs.is_root else ["--user", "--map-root-user", "--mount"]
    return [unshare, *namespaces, "sh", "-c", HOST, "-", str(runs.folder)]


def test_mounts_of_the_host_are_seen_and_the_rest_stays_writable(runs: Runs, prefix: list[str]) -> None:
    before = Path("/etc/passwd").read_bytes()
    run = runs.start("sh", "-c", LOOK, prefix=prefix, is_root=True)
    assert run.ended().get("message") is None
    printed = run.output().splitlines()
    expected = ["certificate", "127.0.0.1 me", "deep", "users", os.readlink("/etc/mtab"), "new"]
    assert printed[: len(expected)] == expected
    assert printed[-1] == "end"
    assert {"/usr/bin/env", "/var/lib"} <= set(printed)
    assert Path("/etc/passwd").read_bytes() == before
    assert not Path("/etc/new").exists()


def test_a_layer_inside_a_folder_of_the_root_does_not_show_itself(runs: Runs) -> None:
    """An overlay is refused over a folder that contains its own upper layer."""
    if not runs.is_root:
        pytest.skip("only root writes to /opt")
    folder = Path("/opt") / f"trainwright-test-{os.getpid()}"
    folder.mkdir()
    try:
        inside = Runs(folder)
        run = inside.start("sh", "-c", "ls -A /opt; touch /opt/made && echo made; ls -A /opt/trainwright-test-*", hidden=[folder])
        listed = run.output().splitlines()
        assert run.ended()["code"] == 0
        assert listed == [*sorted(os.listdir("/opt")), "made"] or listed[-1] == "made"
        assert not Path("/opt/made").exists()
        (folder / "secret").write_text("token")
        run = inside.start("sh", "-c", "ls -A /opt/trainwright-test-*; sleep 100", hidden=[folder])
        run.state()
        assert not list((run.folder / "layer").rglob("secret")), "nothing of a hidden folder is copied into the layer"
        run.process.kill()
        assert run.process.wait(10)
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
