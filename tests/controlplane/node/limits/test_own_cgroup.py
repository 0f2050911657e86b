"""The control group of a process is found in every layout: versions 1 and 2, systemd, containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainwright.controlplane.node.limits import control_groups
from trainwright.controlplane.node.limits.control_groups import AGENT_LEAF, ControlGroups, OwnCgroup, own_cgroup

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
    found = own_cgroup("memory", tmp_path)
    assert (None if found is None else (str(found.folder), found.version)) == expected


UNIT = "user.slice/user-1000.slice/user@1000.service/app.slice/trainwright.service"


class SystemdTree:
    """Folders that look like /sys/fs/cgroup of version 2 with systemd: a user's service with `Delegate=yes`.

    As recorded on systemd 252: a user's manager passes on `cpu memory pids`; files are written as the kernel would see them.
    """

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch, pids: list[int], controllers: str = "cpu memory pids"):
        self.top, self.unit = top / "cgroup", top / "cgroup" / UNIT
        folder = self.top
        for name in Path(UNIT).parts:
            folder /= name
            self._add(folder, controllers, "cpu memory pids", [])
        self._add(self.unit, controllers, "", pids)
        monkeypatch.setattr(control_groups, "own_cgroup", lambda _: self.own)
        self.own = OwnCgroup(self.unit, self.top, 2, is_root=False)

    def restart_in_leaf(self) -> None:
        """The control plane was started again by a process that the last one had moved."""
        self._add(self.unit / AGENT_LEAF, "", "", [])
        self.own = OwnCgroup(self.unit / AGENT_LEAF, self.top, 2, is_root=False)

    def text(self, path: str) -> str:
        return (self.unit / path).read_text("ascii")

    def _add(self, folder: Path, controllers: str, children: str, pids: list[int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {
            "cgroup.controllers": controllers,
            "cgroup.subtree_control": children,
            "cgroup.type": "domain",
        }.items():
            (folder / name).write_text(text, "ascii")
        (folder / "cgroup.procs").write_text("\n".join(map(str, pids)), "ascii")


def test_a_group_with_processes_of_others_is_not_restructured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SystemdTree(tmp_path, monkeypatch, [os.getpid(), os.getppid()])
    assert ControlGroups.find(tmp_path) is None
    assert not (tree.unit / AGENT_LEAF).exists()
    assert tree.text("cgroup.subtree_control") == ""


def test_a_group_without_controllers_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SystemdTree(tmp_path, monkeypatch, [os.getpid()], "cpu io")
    assert ControlGroups.find(tmp_path) is None
    assert not (tree.unit / AGENT_LEAF).exists()


def test_a_delegated_group_gets_a_leaf_for_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SystemdTree(tmp_path, monkeypatch, [os.getpid()], "memory pids")
    found = ControlGroups.find(tmp_path)
    assert found is not None
    assert tree.text(f"{AGENT_LEAF}/cgroup.procs") == str(os.getpid())
    assert tree.text("cgroup.subtree_control") == "+memory +pids"
    (created,) = found.create("uid", "main", 0, 1000, 50)
    assert created.is_relative_to(tree.unit)
    assert (created / "memory.max").read_text("ascii") == "1000"
    assert (created / "pids.max").read_text("ascii") == "50"
    assert (created.parent / "cgroup.subtree_control").read_text("ascii") == "+memory +pids"
    assert found.limit_memory


def test_supervisors_watch_memory_where_only_pids_are_delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SystemdTree(tmp_path, monkeypatch, [os.getpid()], "pids")
    found = ControlGroups.find(tmp_path)
    assert found is not None
    assert not found.limit_memory
    assert tree.text("cgroup.subtree_control") == "+pids"
    (created,) = found.create("uid", "main", 0, 1000, 50)
    assert not (created / "memory.max").exists()


def test_a_restart_in_the_leaf_uses_its_parent_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SystemdTree(tmp_path, monkeypatch, [])
    (tree.unit / "cgroup.subtree_control").write_text("memory pids", "ascii")
    tree.restart_in_leaf()
    found = ControlGroups.find(tmp_path)
    assert found is not None
    assert [hierarchy.base.parent for hierarchy in found.hierarchies] == [tree.unit]


def test_a_group_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's session scope belongs to root: nothing is delegated."""
    SystemdTree(tmp_path, monkeypatch, [os.getpid()])

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(control_groups, "_write", refuse)
    assert ControlGroups.find(tmp_path) is None


def test_groups_of_a_killed_node_are_found_below_any_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = SystemdTree(tmp_path, monkeypatch, [])
    left = tree.unit.parent / "other.scope" / control_groups._base_name(tmp_path) / "uid" / "main-0"
    left.mkdir(parents=True)
    control_groups.remove_groups_of(tmp_path)
    assert not left.parent.parent.exists()
    assert tree.unit.exists()
