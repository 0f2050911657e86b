"""A subPath names something inside of its volume, whatever links a container has put there."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.isolation.plan import ContainerMount
from trainwright.controlplane.node.volumes import ConfigError, MadeVolume
from trainwright.controlplane.node.volumes.files import VolumeFile, write_files
from trainwright.controlplane.node.volumes.mounts import SubPathEscape, container_mounts, find_sub_path, read_in_volume


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume with links as a container could make them, beside a folder that it must not reach."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    volume = tmp_path / "volume"
    (volume / "d/e").mkdir(parents=True)
    (volume / "file").write_text("text")
    for name, target in {
        "in": "d/e",
        "up": "..",
        "out": "../outside",
        "absolute": str(outside),
        "d/back": "../file",
        "loop": "loop",
        "dangling": "d/new/folder",
        "chain": "in/../../up/x",
    }.items():
        (volume / name).symlink_to(target)
    return volume


@pytest.mark.parametrize(
    ("sub_path", "found"),
    [
        ("d", "d"),
        ("d//e/.", "d/e"),
        ("file", "file"),
        ("in", "d/e"),
        ("d/back", "file"),
        ("new/deep", "new/deep"),
        ("in/new", "d/e/new"),
        ("dangling", "d/new/folder"),
    ],
)
def test_inside(sub_path: str, found: str, volume: Path) -> None:
    volume.chmod(0o2775)
    assert find_sub_path(volume, sub_path) == volume / found
    assert (volume / found).exists()
    if "new" in found:
        assert stat.S_IMODE((volume / found).stat().st_mode) == 0o2775, "the volume's own mode"


@pytest.mark.parametrize(
    "sub_path", ["up", "up/x", "out", "out/secret", "out/new", "absolute", "absolute/secret", "chain", "../outside"]
)
def test_outside(sub_path: str, volume: Path) -> None:
    for find in (lambda: find_sub_path(volume, sub_path), lambda: read_in_volume(volume, sub_path, 10)):
        with pytest.raises(SubPathEscape):
            find()
    assert os.listdir(volume.parent / "outside") == ["secret"], "nothing was made there"


@pytest.mark.parametrize("sub_path", ["loop", "file/x"])
def test_link_loops_and_paths_below_files_raise_an_os_error(sub_path: str, volume: Path) -> None:
    with pytest.raises(OSError, match=r"too many links|Not a directory"):
        find_sub_path(volume, sub_path)


NAMES = st.sampled_from(["a", "b", "c"])
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", ".", "outside", "/outside"]), min_size=1, max_size=4).map("/".join)


@pytest.mark.medium
@given(links=st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), TARGETS, max_size=5), sub_path=TARGETS)
def test_property_whatever_is_found_is_inside_and_nothing_is_made_outside(links: dict[str, str], sub_path: str) -> None:
    with tempfile.TemporaryDirectory() as top:
        volume, outside = Path(top, "volume"), Path(top, "outside")
        volume.mkdir()
        outside.mkdir()
        for name, target in links.items():
            link = volume / name
            with contextlib.suppress(OSError, RuntimeError):  # its folder is another link, which leads nowhere
                if link.parent.resolve().is_relative_to(volume.resolve()):
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(target.replace("/outside", str(outside)) if target.startswith("/") else target)
        try:
            found = find_sub_path(volume, sub_path)
        except (SubPathEscape, OSError):
            found = volume
        assert found.resolve() == found, "no link is left in it"
        assert found.is_relative_to(volume.resolve())
        assert sorted(os.listdir(top)) == ["outside", "volume"]
        assert os.listdir(outside) == []


POD: dict[str, Any] = {"spec": {"volumes": [{"name": "v"}, {"name": "w"}]}}


def mounts_of(volume: MadeVolume, **mount: Any) -> list[ContainerMount]:
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/m", **mount}]}
    return container_mounts(POD, container, {"v": volume}, {"A": "a", "EMPTY": "", "DOTS": "..", "NUL": "\0"})


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        ({"name": "w"}, 'cannot find volume "w" to mount into container "main"'),
        ({"subPath": "/etc"}, "error SubPath `/etc` must not be an absolute path"),
        ({"subPath": "../x"}, "unable to provision SubPath `../x`: must not contain '..'"),
        ({"subPathExpr": "a/$(DOTS)/b"}, "unable to provision SubPath `a/../b`: must not contain '..'"),
        ({"subPathExpr": "$(NO)/$(A)/$(EMPTY)/$(NO)"}, "missing value for EMPTY, NO"),
        (
            {"subPath": "out/secret"},
            'failed to prepare subPath for volumeMount "v" of container "main": it leads out of the volume',
        ),
        ({"subPath": "file/x"}, 'failed to prepare subPath for volumeMount "v" of container "main"'),
        ({"subPathExpr": "$(NUL)"}, 'failed to prepare subPath for volumeMount "v" of container "main"'),
    ],
)
def test_mounts_refuse_invalid_sub_paths(mount: dict[str, Any], message: str, volume: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        mounts_of(MadeVolume(volume), **mount)
    assert str(raised.value) == message


@pytest.mark.parametrize("target", ["/proc", "proc/self", "/a/../sys//", "/dev", "/dev/null"])
def test_paths_of_the_kernel_are_refused(target: str, volume: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        mounts_of(MadeVolume(volume), mountPath=target)
    assert str(raised.value) == f'volumeMount "v" of container "main": no volume can be mounted at {target}'


@pytest.mark.parametrize("target", ["/processed", "/system", "/dev/shm", "/dev/shm/x", "/devices", "/"])
def test_paths_that_only_look_like_those_of_the_kernel_are_mounted(target: str, volume: Path) -> None:
    assert mounts_of(MadeVolume(volume), mountPath=target)[0].container_path == target


def test_devices_of_the_host_may_be_mounted_in_dev() -> None:
    device = MadeVolume(Path("/dev/null"))
    assert mounts_of(device, mountPath="/dev/fuse")[0].container_path == "/dev/fuse"
    with pytest.raises(ConfigError):
        mounts_of(MadeVolume(Path("/dev/shm/trainwright/v")), mountPath="/dev/fuse")


@pytest.mark.parametrize("is_projected", [True, False])
def test_only_the_flag_of_a_volume_says_that_it_is_projected(is_projected: bool, tmp_path: Path) -> None:
    (tmp_path / "..v1").mkdir()
    (tmp_path / "..v1" / "key").write_text("")
    (tmp_path / "..data").symlink_to("..v1")
    (mount,) = mounts_of(MadeVolume(tmp_path, is_projected=is_projected), subPath="..data/key")
    assert mount.host_path == tmp_path / ("..data" if is_projected else "..v1") / "key"


def test_a_file_of_a_config_map_outlives_its_change(tmp_path: Path) -> None:
    """Where the container's path is mapped and not mounted, the file must still be there when the content has changed."""
    write_files(tmp_path, {"deep/key": VolumeFile(b"1", 0o644)})
    (mount,) = mounts_of(MadeVolume(tmp_path, read_only=True, is_projected=True), subPath="deep/key")
    write_files(tmp_path, {"deep/key": VolumeFile(b"2", 0o644)})
    assert mount.host_path is not None
    assert mount.host_path.read_text() == "2"


def test_reading_is_limited_and_only_of_files(volume: Path) -> None:
    os.mkfifo(volume / "fifo")
    assert read_in_volume(volume, "d/back", 2) == b"te"
    with pytest.raises(FileNotFoundError):
        read_in_volume(volume, "none/x", 2)
    assert not (volume / "none").exists()
    for path in ("d", "fifo"):
        with pytest.raises(OSError, match=r"not a regular file|directory"):
            read_in_volume(volume, path, 2)
