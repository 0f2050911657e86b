"""Containers that use more memory than their limit are killed, and the records say why."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.supervised_containers import OTHER_USER, Runs, interpreter, supervised_runs

from trainwright.controlplane.node.isolation.visible import python_folders
from trainwright.controlplane.node.limits.memory_cgroup import MemoryCgroups
from trainwright.controlplane.node.limits.memory_watchdog import descendants, proportional_bytes, resident_bytes

pytestmark = pytest.mark.medium
LIMIT = 60_000_000
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
def cgroups(tmp_path: Path) -> Iterator[MemoryCgroups]:
    found = MemoryCgroups.find(tmp_path)
    if found is None:
        pytest.skip("this user may not create memory control groups")
    yield found
    found.remove_others(())
    found.close()
    assert not found.base.exists()


@pytest.fixture
def own_runs() -> Iterator[Runs]:
    with supervised_runs(None) as found:
        yield found


@pytest.mark.parametrize("isolated", [True, False])
def test_the_kernel_kills_above_the_limit(own_runs: Runs, cgroups: MemoryCgroups, isolated: bool) -> None:
    group = cgroups.create("uid-1", "main", 0, LIMIT)
    run = own_runs.start(*python(own_runs, EAT), isolated=isolated, visible=python_folders(), cgroup=[str(group)])
    ended = run.ended()
    assert (ended["code"], ended["signal"], ended["reason"]) == (137, 9, "OOMKilled")
    assert run.output() == ""
    assert cgroups.oom_kills(group) == 1
    cgroups.remove(group)
    assert not group.parent.exists()


def test_a_child_that_is_killed_for_memory_is_reported_with_the_main_process_s_code(
    own_runs: Runs, cgroups: MemoryCgroups
) -> None:
    group = cgroups.create("uid-1", "main", 0, LIMIT)
    command = f'{interpreter(None)} -c "{EAT}"; echo code $?'
    run = own_runs.start("sh", "-c", command, visible=python_folders(), cgroup=[str(group)])
    assert (run.ended()["code"], run.ended()["reason"]) == (0, "OOMKilled")
    assert "code 137" in run.output()


def test_commands_of_exec_sessions_count(own_runs: Runs, cgroups: MemoryCgroups) -> None:
    group = cgroups.create("uid-1", "main", 0, LIMIT)
    run = own_runs.start("sleep", "600", visible=python_folders(), cgroup=[str(group)])
    run.state()
    assert run.execute(*python(own_runs, EAT)).returncode == -9
    assert cgroups.oom_kills(group) == 1
    os.kill(run.state()["pid"], signal.SIGKILL)
    run.ended()


def test_a_container_within_its_limit_is_left_alone(own_runs: Runs, cgroups: MemoryCgroups) -> None:
    group = cgroups.create("uid-1", "main", 0, LIMIT * 10)
    run = own_runs.start(*python(own_runs, EAT), visible=python_folders(), cgroup=[str(group)])
    assert run.output() == "survived\n"
    assert "reason" not in run.ended()


def test_groups_of_unknown_pods_and_of_this_node_only_are_removed(cgroups: MemoryCgroups, tmp_path: Path) -> None:
    kept, gone = cgroups.create("known", "main", 0, LIMIT), cgroups.create("unknown", "main", 3, LIMIT)
    (tmp_path / "other").mkdir()
    neighbour = MemoryCgroups.find(tmp_path / "other")
    assert neighbour is not None
    theirs = neighbour.create("unknown", "main", 0, LIMIT)
    cgroups.remove_others({"known"})
    assert (kept.exists(), gone.exists(), theirs.exists()) == (True, False, True)
    assert cgroups.create("known", "main", 0, LIMIT) == kept  # of an interrupted start
    cgroups.remove_pod("known")
    assert not kept.parent.exists()
    neighbour.remove_others(())
    neighbour.base.rmdir()


@pytest.mark.parametrize("name", ["../x", "", "a/b", ".."])
def test_a_name_cannot_lead_out_of_the_group(cgroups: MemoryCgroups, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of the name"):
        cgroups.create(name, "main", 0, LIMIT)
    with pytest.raises(ValueError, match="cannot be part of the name"):
        cgroups.create("uid", name, 0, LIMIT)


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


def python(runs: Runs, code: str) -> list[str]:
    return [interpreter(runs.user), "-c", code]


def _visible(runs: Runs) -> list[Path]:
    return python_folders() if interpreter(runs.user) == sys.executable else []
