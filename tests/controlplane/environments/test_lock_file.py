"""Locks as uv and pip-tools write them."""

from __future__ import annotations

import sys

import pytest

from trainwright.controlplane.environments.definition import LockError, pinned, pins_here, read_lock

TEXT = f"""\
# What is installed
one[extra]==1.0 ; sys_platform == '{sys.platform}' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via two
One_Other==2 --hash=sha256:cc  # via one
absent==3 ; sys_platform == 'none' \\
    --hash=sha256:dd
torch==2.13.0 \\
    --hash=sha256:ee
torch==2.13.0+cpu \\
    --hash=sha256:ff
bare==4
"""


def test_lock_is_read_as_it_is_written() -> None:
    pins = read_lock(TEXT)
    assert [(pin.name, str(pin.version), pin.hashes) for pin in pins] == [
        ("one", "1.0", ("sha256:aa", "sha256:bb")),
        ("one-other", "2", ("sha256:cc",)),
        ("absent", "3", ("sha256:dd",)),
        ("torch", "2.13.0", ("sha256:ee",)),
        ("torch", "2.13.0+cpu", ("sha256:ff",)),
        ("bare", "4", ()),
    ]
    assert read_lock("".join(f"{pin}\n" for pin in pins)) == pins


@pytest.mark.parametrize(("build", "torch"), [("cpu", "2.13.0+cpu"), ("", "2.13.0")])
def test_build_has_one_entry_for_each_package_of_this_machine(build: str, torch: str) -> None:
    pins = pins_here(read_lock(TEXT), build)
    assert [pin.name for pin in pins] == ["one", "one-other", "torch", "bare"]
    wanted = ["One[b,a]>=1", "torch>2", "unlocked>1", "none==5; sys_platform == 'none'", "bare @ file:///bare.whl"]
    assert pinned(wanted, pins) == ["One[a,b]==1.0", f"torch=={torch}", "unlocked>1", "bare @ file:///bare.whl"]


def test_only_build_of_a_package_is_kept() -> None:
    pins = read_lock("torch==2.13.0+cu130 --hash=sha256:aa\n")
    assert pins_here(pins, "cpu") == pins_here(pins) == pins


@pytest.mark.parametrize(
    "entry", ["x", "x>=1", "x==1,<2", "x===1", "x==1.*", "--index-url https://example.com", "-r other.txt", "./x"]
)
def test_entry_without_one_version_is_refused(entry: str) -> None:
    with pytest.raises(LockError, match="not a package with its version: "):
        read_lock(f"a==1\n{entry}\n")


@pytest.mark.parametrize(
    "words",
    ["--hash=md5:aa", "--hash=sha256:AA", "--hash sha256:aa", "--hash=sha256:aag", "--hash=", "--hash=sha256:aa \\\n --hash=x"],
)
def test_hash_of_another_form_is_no_lock_without_hashes(words: str) -> None:
    with pytest.raises(LockError, match="not hashes as in "):
        read_lock(f"a==1 \\\n    {words}\n")


def test_hash_in_a_comment_is_none() -> None:
    assert [
        pin.hashes for pin in read_lock("a==1 # --hash=md5:aa\n    # --hash=sha256:aa\nb==1 --hash=sha256:bb # --hash=c\n")
    ] == [
        (),
        ("sha256:bb",),
    ]
