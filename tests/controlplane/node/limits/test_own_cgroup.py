"""The control group of a process is found in every layout: versions 1 and 2, systemd, containers."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.controlplane.node.limits import memory_cgroup
from trainwright.controlplane.node.limits.memory_cgroup import AGENT_LEAF, MemoryCgroups
from trainwright.controlplane.node.limits.oom_kills import oom_kills
from trainwright.controlplane.node.limits.own_cgroup import OwnCgroup, own_memory_cgroup

V1 = "33 24 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
HYBRID = "31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
DOCKER = "33 24 0:29 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory"


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        ("4:memory:/user/x\n0::/y", [V1, HYBRID], ("/sys/fs/cgroup/memory/user/x", 1)),
        ("4:cpu,memory:/\n0::/", [V1.replace("rw,memory", "rw,cpu,memory")], ("/sys/fs/cgroup/memory", 1)),
        ("0::/user.slice/user@1000.service/a.scope", [V2], ("/sys/fs/cgroup/user.slice/user@1000.service/a.scope", 2)),
        ("4:memory:/docker/abc/inner\n0::/", [DOCKER], ("/sys/fs/cgroup/memory/inner", 1)),
        ("4:memory:/elsewhere\n0::/", [DOCKER], None),
        ("0::/../outside", [V2], None),
        ("2:cpu:/\n", [V1], None),
    ],
)
def test_the_group_of_this_process(tmp_path: Path, groups: str, mounts: list[str], expected: tuple[str, int] | None) -> None:
    (tmp_path / "cgroup").write_text(groups, "utf-8")
    (tmp_path / "mountinfo").write_text("\n".join(mounts) + "\n", "utf-8")
    found = own_memory_cgroup(tmp_path)
    assert (None if found is None else (str(found.folder), found.version)) == expected


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert own_memory_cgroup(tmp_path) is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"}, 2),
        ({"memory.events": "low 0\nhigh 0\nmax 7\noom 3\noom_kill 1\noom_group_kill 0\n"}, 1),
        ({"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\n"}, 0),
        ({}, 0),
    ],
)
def test_counts_of_kills(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, "ascii")
    assert oom_kills(str(tmp_path)) == expected
    assert oom_kills(str(tmp_path / "missing")) == 0


class DelegatedGroup:
    """A folder that looks like a group of version 2; files are written as the kernel would see them."""

    def __init__(self, folder: Path, pids: list[int], controllers: str = "cpu memory"):
        self.folder = folder
        folder.mkdir()
        for name, text in {"cgroup.controllers": controllers, "cgroup.subtree_control": "", "cgroup.type": "domain"}.items():
            (folder / name).write_text(text, "ascii")
        (folder / "cgroup.procs").write_text("\n".join(map(str, pids)), "ascii")

    @property
    def own(self) -> OwnCgroup:
        return OwnCgroup(self.folder, self.folder.parent, 2, is_root=False)


def test_a_group_with_processes_of_others_is_not_restructured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = DelegatedGroup(tmp_path / "unit", [memory_cgroup.os.getpid(), memory_cgroup.os.getppid()])
    monkeypatch.setattr(memory_cgroup, "own_memory_cgroup", lambda: group.own)
    assert MemoryCgroups.find(tmp_path) is None
    assert not (group.folder / AGENT_LEAF).exists()
    assert (group.folder / "cgroup.subtree_control").read_text("ascii") == ""


def test_a_group_without_the_controller_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = DelegatedGroup(tmp_path / "unit", [memory_cgroup.os.getpid()], "cpu pids")
    monkeypatch.setattr(memory_cgroup, "own_memory_cgroup", lambda: group.own)
    assert MemoryCgroups.find(tmp_path) is None
    assert not (group.folder / AGENT_LEAF).exists()


def test_a_delegated_group_gets_a_leaf_for_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = memory_cgroup.os.getpid()
    group = DelegatedGroup(tmp_path / "unit", [pid])
    monkeypatch.setattr(memory_cgroup, "own_memory_cgroup", lambda: group.own)
    found = MemoryCgroups.find(tmp_path)
    assert found is not None
    assert (group.folder / AGENT_LEAF / "cgroup.procs").read_text("ascii") == str(pid)
    assert (group.folder / "cgroup.subtree_control").read_text("ascii") == "+memory"
    created = found.create("uid", "main", 0, 1000)
    assert (created / "memory.max").read_text("ascii") == "1000"
    assert (created.parent / "cgroup.subtree_control").read_text("ascii") == "+memory"


def test_a_restart_in_the_leaf_uses_its_parent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = DelegatedGroup(tmp_path / "unit", [])
    (group.folder / "cgroup.subtree_control").write_text("memory", "ascii")
    leaf = group.folder / AGENT_LEAF
    leaf.mkdir()
    monkeypatch.setattr(memory_cgroup, "own_memory_cgroup", lambda: OwnCgroup(leaf, tmp_path, 2, is_root=False))
    found = MemoryCgroups.find(tmp_path)
    assert found is not None
    assert found.base.parent == group.folder
