"""Volumes in memory lie where everybody can write: they must be the node's own, and go with their pod."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from trainwright.controlplane.node.volumes import VolumeError
from trainwright.controlplane.node.volumes.memory import MemoryFolders, remove_tree


def test_only_the_volume_itself_is_open(tmp_path: Path) -> None:
    memory = MemoryFolders(tmp_path / "top")
    volume = memory.make("u", "v", None)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (volume, volume.parent, memory.top)] == [0o777, 0o700, 0o700]


def test_a_folder_that_others_can_enter_or_a_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "private").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "private")
    for name in ("open", "link"):
        with pytest.raises(VolumeError, match="remove it"):
            MemoryFolders(tmp_path / name).make("u", "v", None)
    MemoryFolders(tmp_path / "link").remove_others(set())
    assert (tmp_path / "private").is_dir()


@pytest.mark.parametrize("uid", ["", ".", "..", "a/b", "/etc"])
def test_a_uid_that_is_no_name_is_refused(uid: str, tmp_path: Path) -> None:
    memory = MemoryFolders(tmp_path / "top")
    memory.make("u", "v", None)
    with pytest.raises(VolumeError):
        memory.remove(uid)


def test_volumes_go_with_their_pod(tmp_path: Path) -> None:
    memory = MemoryFolders(tmp_path / "top")
    for uid in ("a", "b", "c"):
        locked = memory.make(uid, "v", None) / "locked"
        locked.mkdir()
        (locked / "file").touch()
        (locked / "outside").symlink_to(tmp_path)
        locked.chmod(0o500)
    memory.remove("a")
    memory.remove("a")
    assert sorted(path.name for path in memory.top.iterdir()) == ["b", "c"]
    memory.remove_others({"c"})
    assert [path.name for path in memory.top.iterdir()] == ["c"]
    assert tmp_path.is_dir()


def test_secrets_of_a_home_are_found_and_removed_without_its_other_volumes(tmp_path: Path) -> None:
    """As `down` does for a node that was killed."""
    memory = MemoryFolders.of_home(tmp_path / "one", tmp_path)
    kept, gone = memory.make("u", "v", None), memory.of_secrets.make("u", "v", None)
    (gone / "token").touch()
    MemoryFolders.of_home(tmp_path / "one", tmp_path).of_secrets.remove_all()
    assert kept.is_dir()
    assert not memory.of_secrets.top.exists()


def test_a_size_is_kept_where_the_node_may_mount(tmp_path: Path) -> None:
    memory = MemoryFolders(tmp_path / "top")
    volume = memory.make("u", "v", None, 1 << 20)
    if not os.path.ismount(volume):
        pytest.skip("no right to mount here")
    try:
        assert stat.S_IMODE(volume.stat().st_mode) == 0o777
        (volume / "half").write_bytes(bytes(1 << 19))
        assert memory.make("u", "v", None, 1 << 20) == volume
        with pytest.raises(OSError, match="No space left"):
            (volume / "more").write_bytes(bytes(1 << 20))
        assert (volume / "half").stat().st_size == 1 << 19
    finally:
        memory.remove("u")
    assert list(memory.top.iterdir()) == []
    memory.make("v", "v", os.getgid(), 1 << 20)
    memory.remove_others(set())
    assert list(memory.top.iterdir()) == []


def test_a_node_that_stops_leaves_an_empty_folder_only_for_its_pods(tmp_path: Path) -> None:
    memory = MemoryFolders(tmp_path / "top")
    memory.close()  # never used
    memory.make("u", "v", None)
    memory.close()
    assert (tmp_path / "top" / "u" / "v").is_dir()
    memory.remove("u")
    memory.close()
    assert not memory.top.exists()


@pytest.mark.medium
def test_several_threads_may_remove_the_same_tree(tmp_path: Path) -> None:
    together = Barrier(4)

    def remove(tree: Path) -> None:
        together.wait(10)
        remove_tree(tree)

    with ThreadPoolExecutor(4) as pool:
        for number in range(5):
            tree = tmp_path / str(number)
            for folder in range(20):
                (tree / str(folder)).mkdir(parents=True)
                for file in range(20):
                    (tree / str(folder) / str(file)).touch()
            list(pool.map(remove, [tree] * 4))
            assert not tree.exists()
