"""Pods whose image has an environment that is made on first use, and the commands for these environments."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import pod
from support.running_plane import running_plane
from support.tiny_packages import only_from, write_wheel
from support.waiting import eventually
from typer.testing import CliRunner, Result

from trainwright.api.kinds import EVENT, POD
from trainwright.cli import app
from trainwright.controlplane.environments import preparations
from trainwright.embedded.home import Home
from trainwright.embedded.plane import ControlPlane

pytestmark = pytest.mark.medium
FILE = """
environments:
- {name: small, images: [registry/small], requirements: [tiny], mebibytes: 1, command: [tiny], env: {GREETING: hello}}
- {name: broken, images: [registry/broken], requirements: [absent==1], mebibytes: 1}
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    write_wheel(folder, "tiny", "1.0")
    for name, value in only_from(folder, tmp_path / "uv").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRAINWRIGHT_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setattr(preparations, "_BACKOFF", preparations.Backoff(2.0, 2.0, jitter=0))
    return folder


@pytest.fixture
def plane(wheels: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    home = Home(tmp_path / "home")
    home.make()
    (home.path / "environments.yaml").write_text(FILE)
    with running_plane(tmp_path) as control_plane:
        yield control_plane


def waiting(plane: ControlPlane, name: str) -> dict[str, Any]:
    statuses = plane.cluster.get(POD, name, "default").get("status", {}).get("containerStatuses") or [{}]
    return dict(statuses[0].get("state", {}).get("waiting") or {})


def ended(plane: ControlPlane, name: str) -> dict[str, Any]:
    return eventually(
        lambda: (
            found if (found := plane.cluster.get(POD, name, "default"))["status"].get("phase") in ("Succeeded", "Failed") else {}
        )
    )


def told(plane: ControlPlane, name: str) -> list[tuple[str, str]]:
    found = plane.cluster.list(EVENT, "default").items
    return [(event["reason"], event["message"]) for event in found if event["involvedObject"]["name"] == name]


def test_pod_waits_for_its_environment_and_runs_in_it(plane: ControlPlane) -> None:
    plane.cluster.create(pod("never", container={"image": "registry/small:1", "imagePullPolicy": "Never"}))
    eventually(lambda: waiting(plane, "never").get("reason") == "ErrImageNeverPull")
    plane.cluster.create(pod("first", container={"image": "registry/small:1"}))
    assert ended(plane, "first")["status"]["phase"] == "Succeeded"
    messages = dict(told(plane, "first"))
    assert messages["Pulling"] == 'Pulling image "registry/small:1": preparing the environment small'
    assert messages["Pulled"].startswith('Successfully pulled image "registry/small:1" in ')
    plane.cluster.create(pod("second", script='test "$GREETING" = hello && tiny', container={"image": "registry/small:1"}))
    assert ended(plane, "second")["status"]["phase"] == "Succeeded"
    assert dict(told(plane, "second"))["Pulled"].endswith("already present on machine and can be accessed by the pod")

    assert ended(plane, "never")["status"]["phase"] == "Succeeded"


def test_restarted_container_finds_its_image_present(plane: ControlPlane) -> None:
    script = "test -e /seen/once || { touch /seen/once; exit 1; }"
    mounts = {"volumeMounts": [{"name": "seen", "mountPath": "/seen"}], "image": "registry/small:1"}
    volumes = {"restartPolicy": "OnFailure", "volumes": [{"name": "seen", "emptyDir": {}}]}
    plane.cluster.create(pod("again", script=script, container=mounts, **volumes))
    assert ended(plane, "again")["status"]["phase"] == "Succeeded"
    messages = [message for reason, message in told(plane, "again") if reason == "Pulled"]
    assert sorted(message.split()[0] for message in messages) == ["Container", "Successfully"]


def test_pod_starts_once_what_was_missing_is_there(plane: ControlPlane, wheels: Path) -> None:
    plane.cluster.create(pod("early", script="absent", container={"image": "registry/broken"}))
    message = eventually(lambda: found if (found := waiting(plane, "early")).get("reason") == "ImagePullBackOff" else {})[
        "message"
    ]
    assert "ErrImagePull: the environment broken cannot be prepared: " in message
    assert "not on this machine: absent==1" in message
    assert {"Failed", "BackOff"} <= {reason for reason, _ in told(plane, "early")}
    write_wheel(wheels, "absent", "1")
    assert ended(plane, "early")["status"]["phase"] == "Succeeded"


def run(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["environments", *arguments, "--home", str(home)])


def listed(home: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(run(home, "list", "-o", "json").stdout)["environments"]}


def test_commands_list_prepare_and_remove(wheels: Path, tmp_path: Path) -> None:
    home = tmp_path / "other"
    home.mkdir()
    (home / "environments.yaml").write_text(FILE)
    assert listed(home)["small"]["state"] == "not prepared"
    assert listed(home)["torch"]["state"] == "not needed"
    made = run(home, "prepare", "small")
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("small is ready after ")
    assert run(home, "prepare", "small").stdout.startswith("small is ready (")
    row = listed(home)["small"]
    assert (row["state"], row["packages"]) == ("ready", ["tiny==1.0"])
    table = run(home, "list").stdout
    assert f"small       ready         {row['mebibytes']} MiB" in table
    (home / "environments.yaml").write_text(FILE.replace("[tiny]", "[tiny==1.0]"))
    assert [found["state"] for found in json.loads(run(home, "list", "-o", "json").stdout)["environments"]][-1] == "outdated"
    assert run(home, "remove", "--outdated").stdout.startswith("removed small (")
    assert run(home, "remove", "--outdated").stdout == "nothing is outdated\n"
