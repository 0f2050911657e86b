"""Containers that use more memory than their limit are killed, and the records say why."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.supervised_containers import OTHER_USER, Runs, interpreter, supervised_runs
from support.waiting import eventually

from trainwright.controlplane.node.isolation.visible import python_folders
from trainwright.controlplane.node.limits.control_groups import ControlGroups, remove_groups_of
from trainwright.controlplane.node.limits.group_files import oom_kills
from trainwright.controlplane.node.limits.memory_watchdog import descendants, proportional_bytes, resident_bytes

pytestmark = pytest.mark.medium
LIMIT, PROCESSES = 60_000_000, 1000
EAT = "x = [b'x' * 1000000 for _ in range(200)]; print('survived'); import time; time.sleep(2)"
SHARED = """
import os, mmap
shared = mmap.mmap(-1, 40_000_000); shared.write(b'x' * 40_000_000)
for _ in range(4):
    if os.fork() == 0:
        sum(shared[::4096]); import time; time.sleep(0.6); os._exit(0)
for _ in range(4): os.wait()
print('survived')
"""


@pytest.fixture(params=[None, OTHER_USER], ids=["own user", "unprivileged"])
def runs(request: pytest.FixtureRequest) -> Iterator[Runs]:
    with supervised_runs(request.param) as found:
        yield found


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[ControlGroups]:
    found = ControlGroups.find(tmp_path)
    if found is None or not found.limit_memory:
        pytest.skip("this user may not create memory control groups")
    yield found
    found.remove_others(())
    found.close()
    assert not any(hierarchy.base.exists() for hierarchy in found.hierarchies)


@pytest.fixture
def own_runs() -> Iterator[Runs]:
    with supervised_runs(None) as found:
        yield found


def test_pods_together_have_less_weight_than_the_control_plane(cgroups: ControlGroups) -> None:
    files = [hierarchy.base / name for hierarchy in cgroups.hierarchies for name in ("cpu.shares", "cpu.weight")]
    weights = {(file.name, file.read_text("ascii").strip()) for file in files if file.exists()}
    if not weights:
        pytest.skip("the CPU cannot be divided by control groups here")
    assert weights <= {("cpu.shares", "512"), ("cpu.weight", "50")}


@pytest.mark.parametrize("isolated", [True, False])
def test_the_kernel_kills_above_the_limit(own_runs: Runs, cgroups: ControlGroups, isolated: bool) -> None:
    groups = create(cgroups)
    run = own_runs.start(*python(own_runs, EAT), isolated=isolated, visible=python_folders(), cgroup=groups)
    ended = run.ended()
    assert (ended["code"], ended["signal"], ended["reason"]) == (137, 9, "OOMKilled")
    assert run.output() == ""
    eventually(lambda: not any(Path(group).parent.exists() for group in groups), what="the removal by the supervisor")


def test_a_child_that_is_killed_for_memory_is_reported_with_the_main_process_s_code(
    own_runs: Runs, cgroups: ControlGroups
) -> None:
    groups = create(cgroups)
    command = f'{interpreter(None)} -c "{EAT}"; echo code $?'
    run = own_runs.start("sh", "-c", command, visible=python_folders(), cgroup=groups)
    assert (run.ended()["code"], run.ended()["reason"]) == (0, "OOMKilled")
    assert "code 137" in run.output()


def test_commands_of_exec_sessions_count(own_runs: Runs, cgroups: ControlGroups) -> None:
    groups = create(cgroups)
    run = own_runs.start("sleep", "600", visible=python_folders(), cgroup=groups)
    run.state()
    assert run.execute(*python(own_runs, EAT)).returncode == -9
    assert sum(map(oom_kills, groups)) == 1
    os.kill(run.state()["pid"], signal.SIGKILL)
    run.ended()


def test_a_container_within_its_limit_is_left_alone(own_runs: Runs, cgroups: ControlGroups) -> None:
    groups = create(cgroups, LIMIT * 10)
    run = own_runs.start(*python(own_runs, EAT), visible=python_folders(), cgroup=groups)
    assert run.output() == "survived\n"
    assert "reason" not in run.ended()


@pytest.mark.parametrize("isolated", [True, False])
def test_control_group_limits_processes_of_containers_and_their_commands(
    own_runs: Runs, cgroups: ControlGroups, isolated: bool
) -> None:
    """The kernel does not count root's processes for RLIMIT_NPROC."""
    groups = create(cgroups, None, processes=10)
    script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 600 & done; echo all; wait"
    run = own_runs.start("sh", "-c", script, isolated=isolated, cgroup=groups)
    assert "Cannot fork" in run.output()
    assert "all" not in run.output().splitlines()


def test_container_sees_only_its_group_and_makes_no_namespaces(own_runs: Runs, cgroups: ControlGroups) -> None:
    script = "cut -d: -f2,3 /proc/self/cgroup; cat /proc/sys/user/max_user_namespaces /proc/sys/user/max_cgroup_namespaces"
    run = own_runs.start("sh", "-c", f"{script}; sleep 600", cgroup=create(cgroups))
    run.state()
    seen = run.execute("sh", "-c", script).stdout.splitlines()
    groups = dict(line.split(":", 1) for line in seen[:-2])
    assert seen[-2:] == ["0", "0"]
    limited = [name for hierarchy in cgroups.hierarchies for name in (hierarchy.controllers if hierarchy.version == 1 else [""])]
    assert {groups[name] for name in limited} == {"/"}
    for attempt in ("unshare -U true", "unshare -UrmC true", "unshare -C true", "echo 9 > /proc/sys/user/max_user_namespaces"):
        assert run.execute("sh", "-c", attempt).returncode != 0, attempt
    writable = run.execute("sh", "-c", "grep -E ' (cgroup2?|sysfs) ' /proc/self/mountinfo | grep -v ' ro[, ]'")
    assert writable.stdout == "", "no control group can be written"
    os.kill(run.state()["pid"], signal.SIGKILL)
    run.ended()


def test_groups_of_unknown_pods_and_of_this_node_only_are_removed(cgroups: ControlGroups, tmp_path: Path) -> None:
    kept = cgroups.create("known", "main", 0, LIMIT, PROCESSES)
    gone = cgroups.create("unknown", "main", 3, None, PROCESSES)
    (tmp_path / "other").mkdir()
    neighbour = ControlGroups.find(tmp_path / "other")
    assert neighbour is not None
    theirs = neighbour.create("unknown", "main", 0, LIMIT, PROCESSES)
    cgroups.remove_others({"known"})
    assert [all(group.exists() for group in groups) for groups in (kept, gone, theirs)] == [True, False, True]
    assert not any(group.exists() for group in gone)
    assert cgroups.create("known", "main", 0, LIMIT, PROCESSES) == kept  # of an interrupted start
    cgroups.remove_pod("known")
    assert not any(group.parent.exists() for group in kept)
    remove_groups_of(tmp_path / "other")
    assert not any(hierarchy.base.exists() for hierarchy in neighbour.hierarchies)


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".."])
def test_a_name_cannot_lead_out_of_the_group(cgroups: ControlGroups, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of the name"):
        cgroups.create(name, "main", 0, LIMIT, PROCESSES)
    with pytest.raises(ValueError, match="cannot be part of the name"):
        cgroups.create("uid", name, 0, LIMIT, PROCESSES)


@pytest.mark.parametrize("isolated", [True, False])
def test_without_control_groups_a_watchdog_kills(runs: Runs, isolated: bool) -> None:
    run = runs.start(*python(runs, EAT), isolated=isolated, visible=_visible(runs), memory_limit=LIMIT)
    ended = run.ended()
    assert (ended["code"], ended["reason"]) == (137, "OOMKilled")


def test_the_watchdog_kills_the_largest_process(runs: Runs) -> None:
    command = f'{interpreter(runs.user)} -c "{EAT}"; echo code $?; exit 4'
    run = runs.start("sh", "-c", command, visible=_visible(runs), memory_limit=LIMIT)
    assert (run.ended()["code"], run.ended()["reason"]) == (4, "OOMKilled")
    assert "code 137" in run.output()


def test_the_watchdog_counts_shared_memory_once(runs: Runs) -> None:
    run = runs.start(*python(runs, SHARED), visible=_visible(runs), memory_limit=LIMIT * 2)
    assert run.output() == "survived\n"
    assert "reason" not in run.ended()


def test_the_memory_of_processes() -> None:
    assert 0 < proportional_bytes(os.getpid()) <= resident_bytes(os.getpid()) * 2
    assert resident_bytes(2**22 + 1) == proportional_bytes(2**22 + 1) == 0
    assert descendants(2**22 + 1) == []


def create(cgroups: ControlGroups, limit: int | None = LIMIT, processes: int = PROCESSES) -> list[str]:
    return [str(group) for group in cgroups.create("uid-1", "main", 0, limit, processes)]


def python(runs: Runs, code: str) -> list[str]:
    return [interpreter(runs.user), "-c", code]


def _visible(runs: Runs) -> list[Path]:
    return python_folders() if interpreter(runs.user) == sys.executable else []
