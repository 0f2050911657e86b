"""Which folders a volume may be: not the home of the cluster, however its path is spelt, and for most only what was named."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.controlplane.host_paths import HostPathPolicy, HostPathRefused


@pytest.fixture
def policy(tmp_path: Path) -> HostPathPolicy:
    home = tmp_path / "user" / "home"
    (home / "credentials").mkdir(parents=True)
    for name in ("named", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "named" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "named" / "circle").symlink_to(tmp_path / "named" / "circle")
    return HostPathPolicy(home, home / "node" / "claims", (tmp_path / "named",))


@pytest.mark.parametrize(
    "path",
    ["user/home", "user/home/credentials", "user/home/none/yet", "user", "", "/", "link", "link/credentials", "named/../link"],
)
def test_the_home_is_refused_whatever_path_leads_to_it(policy: HostPathPolicy, path: str, tmp_path: Path) -> None:
    with pytest.raises(HostPathRefused, match="is, contains or is in the home of the cluster"):
        policy.check_outside_home(tmp_path / path)


def test_a_linked_home_is_refused_too(policy: HostPathPolicy, tmp_path: Path) -> None:
    linked = HostPathPolicy(tmp_path / "link", tmp_path / "link/node/claims")
    for path in ("user", "user/home/credentials", "link"):
        with pytest.raises(HostPathRefused):
            linked.check_outside_home(tmp_path / path)


@pytest.mark.parametrize("path", ["other", "user/else", "named/out", "user/homely", "none"])
def test_what_is_beside_the_home_is_not_in_it(policy: HostPathPolicy, path: str, tmp_path: Path) -> None:
    assert policy.check_outside_home(tmp_path / path) == (tmp_path / path).resolve()


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
