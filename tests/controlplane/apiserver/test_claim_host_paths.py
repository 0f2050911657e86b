"""Who may say which folder of this machine a claim is: in claims themselves, and in templates that controllers carry out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import jobset, pod, replicated_job
from senders import Sender

from trainwright.api.errors import Forbidden
from trainwright.api.kinds import CLAIM, JOBSET, POD
from trainwright.api.names import HOST_FOLDER_ANNOTATION, HOST_PATH_ANNOTATION
from trainwright.api.objects import annotations_of
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.controlplane.apiserver.wire.media import MERGE, STRATEGIC
from trainwright.controlplane.apiserver.wire.requests import WriteOptions
from trainwright.controlplane.host_paths import HostPathPolicy

SPEC = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
MOUNTS = {"name": "node", "image": "x", "volumeMounts": [{"name": "c", "mountPath": "/c"}]}
USER, ADMINISTRATOR = WriteOptions(sender=Sender()), WriteOptions(sender=Sender(is_administrator=True))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ResourceServer]:
    home = tmp_path / "home"
    home.mkdir()
    store = Store(":memory:")
    yield ResourceServer(store, host_paths=HostPathPolicy(home, home / "node/claims", (tmp_path / "named",)))
    store.close()


def claim(path: Path | str | None = None) -> dict[str, Any]:
    annotations = {"annotations": {HOST_PATH_ANNOTATION: str(path)}} if path is not None else {}
    return {"metadata": {"name": "c", **annotations}, "spec": SPEC}


def test_a_user_chooses_below_named_folders_only(server: ResourceServer, tmp_path: Path) -> None:
    for path in (
        tmp_path / "other",
        tmp_path / "home",
        tmp_path / "named/../other",
        "named/a",
        "/",
        tmp_path / "home/node/claims/default/d",
    ):
        with pytest.raises(Forbidden, match=r'persistentvolumeclaims "c" is forbidden: annotation trainwright.dev/host-path: '):
            server.create(CLAIM, "default", claim(path), USER)
    server.create(CLAIM, "default", claim(tmp_path / "named/a"), USER)


def test_a_claims_own_folder_is_everyones_choice(server: ResourceServer, tmp_path: Path) -> None:
    server.create(CLAIM, "default", claim(tmp_path / "home/node/claims/default/c"), USER)


def test_an_administrator_and_controllers_choose_any_folder(server: ResourceServer, tmp_path: Path) -> None:
    for options in (ADMINISTRATOR, WriteOptions()):
        assert not server.create(CLAIM, "default", claim(tmp_path / "other"), options).warnings
        server.patch(CLAIM, "default", "c", {"metadata": {"finalizers": None}}, MERGE)
        server.delete(CLAIM, "default", "c")
    told = server.create(CLAIM, "default", claim(tmp_path / "home/credentials"), ADMINISTRATOR).warnings
    assert "pods with this claim will not start" in told[0]


def test_the_choice_of_an_administrator_is_kept_by_other_writes_and_not_changed(server: ResourceServer, tmp_path: Path) -> None:
    server.create(CLAIM, "default", claim(tmp_path / "other"), ADMINISTRATOR)
    server.patch(CLAIM, "default", "c", {"metadata": {"labels": {"a": "b"}}}, MERGE, USER)
    changed = {"metadata": {"annotations": {HOST_PATH_ANNOTATION: str(tmp_path / "third")}}}
    for media in (MERGE, STRATEGIC):
        with pytest.raises(Forbidden, match="is not below a folder that the cluster's operator has named"):
            server.patch(CLAIM, "default", "c", changed, media, USER)


def test_the_named_folder_of_a_choice_is_noted_and_stays(server: ResourceServer, tmp_path: Path) -> None:
    def marks() -> tuple[Any, Any]:
        annotations = server.get(CLAIM, "default", "c").object["metadata"].get("annotations") or {}
        return annotations.get(HOST_PATH_ANNOTATION), annotations.get(HOST_FOLDER_ANNOTATION)

    def change(annotations: Any, options: WriteOptions) -> None:
        server.patch(CLAIM, "default", "c", {"metadata": {"annotations": annotations}}, MERGE, options)

    chosen, named = str(tmp_path / "named/a"), str(tmp_path / "named")
    server.create(CLAIM, "default", claim(chosen), USER)
    assert marks() == (chosen, named)
    for changed in ({HOST_FOLDER_ANNOTATION: None}, {HOST_FOLDER_ANNOTATION: "/"}, {"other": "x"}):
        change(changed, USER)
        assert marks() == (chosen, named)
    server.update(CLAIM, "default", "c", {**claim(chosen), "spec": server.get(CLAIM, "default", "c").object["spec"]}, USER)
    assert marks() == (chosen, named)
    change({HOST_PATH_ANNOTATION: str(tmp_path / "other")}, ADMINISTRATOR)
    assert marks() == (str(tmp_path / "other"), None)
    change({HOST_PATH_ANNOTATION: None}, USER)
    assert marks() == (None, None)
    change({HOST_PATH_ANNOTATION: chosen}, WriteOptions())
    assert marks() == (chosen, named), "a controller may carry out the template of anybody"


@pytest.mark.parametrize("options", [USER, ADMINISTRATOR, WriteOptions()])
def test_templates_choose_what_everyone_may_because_controllers_carry_them_out(
    server: ResourceServer, options: WriteOptions, tmp_path: Path
) -> None:
    for path, allowed in ((tmp_path / "other", False), (tmp_path / "home", False), (tmp_path / "named/a", True)):
        template = {"metadata": {"name": "c", "annotations": {HOST_PATH_ANNOTATION: str(path)}}, "spec": SPEC}
        without_name = {**template, "metadata": {"annotations": template["metadata"]["annotations"]}}
        objects = (
            (POD, pod(volumes=[{"name": "v", "ephemeral": {"volumeClaimTemplate": without_name}}])),
            (
                JOBSET,
                jobset("js", replicated_job(pod_spec={"containers": [MOUNTS]}), volumeClaimPolicies=[{"templates": [template]}]),
            ),
        )
        for kind, obj in objects:
            if allowed:
                server.create(kind, "default", obj, options)
            else:
                with pytest.raises(Forbidden, match=HOST_PATH_ANNOTATION):
                    server.create(kind, "default", obj, options)


def test_write_of_the_status_chooses_no_folder_either(server: ResourceServer, tmp_path: Path) -> None:
    server.create(CLAIM, "default", claim(), USER)
    status = replace(USER, status=True)
    changed = {"metadata": {"annotations": {HOST_PATH_ANNOTATION: str(tmp_path / "other")}}}
    with pytest.raises(Forbidden, match="is not below a folder that the cluster's operator has named"):
        server.patch(CLAIM, "default", "c", changed, MERGE, status)
    marked = {"metadata": {"annotations": {HOST_FOLDER_ANNOTATION: str(tmp_path / "named")}}}
    server.patch(CLAIM, "default", "c", marked, MERGE, status)
    assert HOST_FOLDER_ANNOTATION not in annotations_of(server.get(CLAIM, "default", "c").object)
