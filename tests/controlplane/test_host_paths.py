"""Which folders a volume may be: nothing of a cluster, however its path is spelt, and for most only what was named."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from trainwright.controlplane.host_paths import MEMORY_PREFIX, SHARED_MEMORY, HostPathPolicy, HostPathRefused


@pytest.fixture
def policy(tmp_path: Path) -> HostPathPolicy:
    home = tmp_path / "user" / "home"
    (home / "credentials").mkdir(parents=True)
    for name in ("named", "other", "cache/environments"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "named" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "named" / "circle").symlink_to(tmp_path / "named" / "circle")
    return HostPathPolicy(home, home / "node" / "claims", (tmp_path / "named",), (tmp_path / "cache" / "environments",))


@pytest.mark.parametrize(
    "path",
    ["user/home", "user/home/credentials", "user/home/none/yet", "user", "", "/", "link", "link/credentials", "named/../link"],
)
def test_the_home_is_refused_whatever_path_leads_to_it(policy: HostPathPolicy, path: str, tmp_path: Path) -> None:
    with pytest.raises(HostPathRefused, match=r"(is in|contains) the home of the cluster"):
        policy.check_outside_own(tmp_path / path)


def test_a_linked_home_is_refused_too(policy: HostPathPolicy, tmp_path: Path) -> None:
    linked = HostPathPolicy(tmp_path / "link", tmp_path / "link/node/claims")
    for path in ("user", "user/home/credentials", "link"):
        with pytest.raises(HostPathRefused):
            linked.check_outside_own(tmp_path / path)


@pytest.mark.parametrize("path", ["cache/environments", "cache/environments/torch-1", "cache"])
def test_environments_of_images_are_refused(policy: HostPathPolicy, path: str, tmp_path: Path) -> None:
    with pytest.raises(HostPathRefused, match="environments, which is not for pods"):
        policy.check_outside_own(tmp_path / path)


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="this machine has no /dev/shm")
def test_memory_of_clusters_is_refused_before_and_after_it_is_made(policy: HostPathPolicy, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix=f"{MEMORY_PREFIX}test-", dir=SHARED_MEMORY))
    free = Path(tempfile.mkdtemp(prefix="data-", dir=SHARED_MEMORY))
    (tmp_path / "to-memory").symlink_to(SHARED_MEMORY)
    try:
        places = [SHARED_MEMORY, folder, folder / "pod", SHARED_MEMORY / f"{MEMORY_PREFIX}1-later-secrets", Path("/dev")]
        for path in (*places, tmp_path / "to-memory", tmp_path / "to-memory" / folder.name):
            for may_contain in (False, True):
                with pytest.raises(HostPathRefused):
                    policy.check_outside_own(path, may_contain=may_contain)
        assert policy.check_outside_own(free) == free
    finally:
        folder.rmdir()
        free.rmdir()


@pytest.mark.parametrize("path", ["/proc", "/proc/sys", "/proc/1"])
def test_files_of_processes_are_refused(policy: HostPathPolicy, path: str) -> None:
    with pytest.raises(HostPathRefused):
        policy.check_outside_own(Path(path))


def test_home_of_another_cluster_is_refused(policy: HostPathPolicy, tmp_path: Path) -> None:
    (tmp_path / "b" / "credentials").mkdir(parents=True)
    (tmp_path / "b" / "credentials" / "admin.token").touch()
    for path in ("b", "b/node/claims"):
        with pytest.raises(HostPathRefused, match="is in the home of another cluster"):
            policy.check_outside_own(tmp_path / path)


@pytest.mark.parametrize("path", ["other", "user/else", "named/out", "user/homely", "none"])
def test_paths_beside_the_home_are_allowed(policy: HostPathPolicy, path: str, tmp_path: Path) -> None:
    assert policy.check_outside_own(tmp_path / path) == (tmp_path / path).resolve()


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("named", True),
        ("named/a/b", True),
        ("named/circle", True),
        ("named/out", False),
        ("named/out/a", False),
        ("named/../other", False),
        ("namedlike", False),
        ("other", False),
        ("named/a\0", False),
    ],
)
def test_others_choose_below_named_folders(policy: HostPathPolicy, path: str, allowed: bool, tmp_path: Path) -> None:
    if allowed:
        policy.check_chosen(tmp_path / path)
        policy.check_mounted(tmp_path / path)
        return
    with pytest.raises(HostPathRefused):
        policy.check_chosen(tmp_path / path)


def test_a_link_that_was_made_later_does_not_lead_out_of_a_named_folder(policy: HostPathPolicy, tmp_path: Path) -> None:
    chosen = tmp_path / "named" / "later"
    policy.check_chosen(chosen)
    chosen.symlink_to(tmp_path / "other")
    with pytest.raises(HostPathRefused, match="by a symbolic link"):
        policy.check_mounted(chosen)
    assert policy.check_mounted(tmp_path / "other"), "an administrator's choice"


def test_a_choice_ends_with_the_name_of_its_folder(policy: HostPathPolicy, tmp_path: Path) -> None:
    chosen, named = tmp_path / "named" / "a", str(tmp_path / "named")
    assert policy.check_mounted(chosen, named) == chosen
    with pytest.raises(HostPathRefused, match="does not name any more"):
        HostPathPolicy(policy.home, policy.claims).check_mounted(chosen, named)
