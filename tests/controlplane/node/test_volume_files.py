"""The volumes of a pod: what is in them, with which modes, how it changes, and what a kubelet says about those that cannot be had."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import cluster_in_memory

from trainwright.api.errors import NotFound
from trainwright.api.kinds import CLAIM, CONFIG_MAP
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.controlplane.host_paths import HostPathPolicy
from trainwright.controlplane.node.volumes import MadeVolume, VolumeError, VolumeMaker
from trainwright.controlplane.node.volumes.memory import MemoryFolders

SCRIPT = "#!/bin/sh\necho ran\n"
GROUP = os.getegid()
Obj = dict[str, Any]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    objects = (
        {"kind": "ConfigMap", "data": {"run": SCRIPT, "text": "t"}, "binaryData": {"bin": "/w=="}},
        {"kind": "Secret", "data": {"key": base64.b64encode(b"\0s").decode()}},
        {
            "kind": "PersistentVolumeClaim",
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )
    made = ({"apiVersion": "v1", "metadata": {"name": "c", "namespace": "default"}, **each} for each in objects)
    with cluster_in_memory(*made) as cluster:
        yield cluster


@pytest.fixture
def volumes(cluster: EmbeddedCluster, tmp_path: Path) -> VolumeMaker:
    return VolumeMaker(cluster, tmp_path / "claims", lambda *_: "token", MemoryFolders(tmp_path / "shm"))


def pod_with(*volumes: Obj, **spec: Any) -> Obj:
    metadata = {"name": "p", "namespace": "default", "uid": "u-1", "labels": {"x": 'a"b\n', "a": "b"}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}], "volumes": list(volumes), **spec}}


def made(volumes: VolumeMaker, folder: Path, volume: Obj, **spec: Any) -> MadeVolume:
    return volumes.make(pod_with({"name": "v", **volume}, **spec), folder)["v"]


@pytest.mark.parametrize(
    ("volume", "modes"),
    [
        ({"configMap": {"name": "c"}}, {"run": 0o644, "text": 0o644, "bin": 0o644}),
        ({"configMap": {"name": "c", "defaultMode": 0o755}}, {"run": 0o755, "text": 0o755, "bin": 0o755}),
        ({"configMap": {"name": "c", "items": [{"key": "run", "path": "bin/x", "mode": 0o555}]}}, {"bin/x": 0o555}),
        ({"configMap": {"name": "c", "items": [{"key": "run", "path": "x", "mode": 0}]}}, {"x": 0}),
        ({"secret": {"secretName": "c", "defaultMode": 0o400}}, {"key": 0o400}),
        (
            {"downwardAPI": {"items": [{"path": "name", "mode": 0o600, "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": 0o600},
        ),
        (
            {
                "projected": {
                    "defaultMode": 0o440,
                    "sources": [{"secret": {"name": "c", "items": [{"key": "key", "path": "s/k"}]}}],
                }
            },
            {"s/k": 0o440},
        ),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}, {"token": 0o644}),
    ],
)
def test_modes(volume: Obj, modes: dict[str, int], volumes: VolumeMaker, tmp_path: Path) -> None:
    place = made(volumes, tmp_path / "pod", volume).path
    shown = [path.name for path in place.iterdir() if not path.name.startswith("..")]
    assert {path: (place / path).stat().st_mode & 0o777 for path in modes} == modes
    assert sorted(shown) == sorted({path.split("/")[0] for path in modes})


def test_a_pods_folders_are_open_and_those_above_are_not(volumes: VolumeMaker, tmp_path: Path) -> None:
    folder = tmp_path / "pods" / "u-1"
    place = made(volumes, folder, {"configMap": {"name": "c", "items": [{"key": "run", "path": "deep/er"}]}}).path
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place, place / "deep", place.parent, folder)] == [
        0o777,
        0o755,
        0o700,
        0o700,
    ]


def test_changed_config_maps_change_files_and_unchanged_ones_write_nothing(
    cluster: EmbeddedCluster, volumes: VolumeMaker, tmp_path: Path
) -> None:
    volume = {"configMap": {"name": "c"}}
    place = made(volumes, tmp_path / "pod", volume).path
    before = os.readlink(place / "..data")
    made(volumes, tmp_path / "pod", volume)
    assert os.readlink(place / "..data") == before
    cluster.patch(CONFIG_MAP, "c", {"data": {"text": "new", "run": None}, "binaryData": None}, "default")
    made(volumes, tmp_path / "pod", volume)
    assert (place / "text").read_text() == "new"
    assert sorted(os.listdir(place)) == sorted(["text", "..data", os.readlink(place / "..data")])


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"configMap": {"name": "late"}}, 'configmap "late" not found'),
        (
            {"configMap": {"name": "c", "items": [{"key": "x", "path": "x"}]}},
            "configmap references non-existent config key: x",
        ),
        ({"secret": {"secretName": "c", "items": [{"key": "x", "path": "x"}]}}, "references non-existent secret key: x"),
        (
            {
                "projected": {
                    "sources": [{"configMap": {"name": "one"}}, {"secret": {"name": "two"}}, {"configMap": {"name": "one"}}]
                }
            },
            '[configmap "one" not found, secret "two" not found]',
        ),
        ({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.no"}}]}}, "unsupported fieldPath: spec.no"),
        ({"persistentVolumeClaim": {"claimName": "gone"}}, 'persistentvolumeclaim "gone" not found'),
        (
            {"configMap": {"name": "c", "items": [{"key": "run", "path": "a/../../x"}]}},
            "invalid path: must not contain '..': a/../../x",
        ),
        (
            {"configMap": {"name": "c", "items": [{"key": "run", "path": "/etc/x"}]}},
            "invalid path: must be relative path: /etc/x",
        ),
        ({"configMap": {"name": "c", "items": [{"key": "run", "path": "..x"}]}}, "invalid path: must not start with '..': ..x"),
        (
            {"configMap": {"name": "c", "items": [{"key": "run", "path": "a"}, {"key": "text", "path": "a/b"}]}},
            "invalid path: a/b is below a, which is a file of the same volume",
        ),
        (
            {"csi": {"driver": "d.io"}},
            "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: "
            "driver name d.io not found in the list of registered CSI drivers",
        ),
        (
            {"nfs": {"server": "s", "path": "/"}},
            "no volume plugin matched: this node cannot mount nfs volumes; mount it on the machine and use a hostPath or a claim",
        ),
        ({"emptyDir": {"medium": "HugePages"}}, 'unknown storage medium "HugePages": this node has disk and Memory'),
    ],
)
def test_unavailable_volumes_raise_volume_errors(volume: Obj, message: str, volumes: VolumeMaker, tmp_path: Path) -> None:
    with pytest.raises(VolumeError) as raised:
        made(volumes, tmp_path / "pod", volume)
    assert (str(raised.value), raised.value.volume) == (message, "v")


@pytest.mark.parametrize(
    ("volume", "spec"),
    [
        ({"hostPath": {"path": "/a\0b"}}, {}),
        ({"hostPath": {"path": "/" + "x" * 300}}, {}),
        ({"emptyDir": {}}, {"securityContext": {"fsGroup": 2**33}}),
        ({"secret": {"secretName": "c"}}, {"securityContext": {"fsGroup": 2**33}}),
    ],
)
def test_volume_that_the_system_cannot_make_is_reported(volume: Obj, spec: Obj, volumes: VolumeMaker, tmp_path: Path) -> None:
    """A worker tells a VolumeError by an Event, and tries again; another error would be a stack trace every second."""
    with pytest.raises(VolumeError) as raised:
        made(volumes, tmp_path / "pod", volume, **spec)
    assert raised.value.volume == "v"
    assert str(tmp_path) not in str(raised.value)


@pytest.mark.parametrize(
    ("volume", "is_confidential"),
    [
        ({"secret": {"secretName": "c"}}, True),
        ({"projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "c"}}]}}, True),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, True),
        ({"projected": {"sources": [{"configMap": {"name": "c"}}]}}, False),
        ({"configMap": {"name": "c"}}, False),
    ],
)
def test_secrets_and_tokens_are_in_memory_and_go_with_their_pod(
    volume: Obj, is_confidential: bool, volumes: VolumeMaker, tmp_path: Path
) -> None:
    found = made(volumes, tmp_path / "pod", volume)
    memory = tmp_path / "shm-secrets"  # here a folder, on a machine with tmpfs /dev/shm: test_volume_memory.py
    assert found.path.is_relative_to(memory) == is_confidential
    assert found.is_projected
    assert found.read_only
    assert not is_confidential or not list((tmp_path / "pod").rglob("*"))
    volumes.close()
    assert found.path.exists() != is_confidential, "a node that has stopped leaves no Secrets"
    assert not memory.exists()


@pytest.mark.parametrize(
    "volume",
    [
        {"configMap": {"name": "late", "optional": True}},
        {"secret": {"secretName": "s", "optional": True, "items": [{"key": "x", "path": "x"}]}},
        {"configMap": {"name": "c", "optional": True, "items": [{"key": "x", "path": "x"}]}},
        {"projected": {"sources": [{"secret": {"name": "s", "optional": True}}, {"configMap": {"name": "s", "optional": True}}]}},
    ],
)
def test_missing_optional_sources_make_an_empty_volume(volume: Obj, volumes: VolumeMaker, tmp_path: Path) -> None:
    place = made(volumes, tmp_path / "pod", volume).path
    assert [name for name in os.listdir(place) if not name.startswith("..")] == []


@pytest.mark.parametrize("volume", [{}, {"emptyDir": {}}, {"emptyDir": {"medium": "Memory"}}])
def test_an_empty_dir_keeps_what_containers_do_with_it(volume: Obj, volumes: VolumeMaker, tmp_path: Path) -> None:
    place = made(volumes, tmp_path / "pod", volume).path
    (place / "data").write_text("x")
    place.chmod(0o750)
    assert made(volumes, tmp_path / "pod", volume).path == place
    assert (place / "data").read_text() == "x"
    assert stat.S_IMODE(place.stat().st_mode) == 0o750


def test_a_group_owns_volumes_and_can_read_what_only_their_owner_could(volumes: VolumeMaker, tmp_path: Path) -> None:
    group = 3000 if os.geteuid() == 0 else GROUP
    context = {"securityContext": {"fsGroup": group}}
    empty = made(volumes, tmp_path / "a", {"emptyDir": {}}, **context).path
    memory = made(volumes, tmp_path / "b", {"emptyDir": {"medium": "Memory"}}, **context).path
    secret = made(volumes, tmp_path / "c", {"secret": {"secretName": "c", "defaultMode": 0o400}}, **context).path
    claim = made(volumes, tmp_path / "d", {"persistentVolumeClaim": {"claimName": "c"}}, **context).path
    found = {path: path.stat() for path in (empty, memory, secret, claim, secret / "key")}
    assert {status.st_gid for status in found.values()} == {group}
    assert [stat.S_IMODE(found[path].st_mode) for path in (empty, memory, secret, claim)] == [0o2777] * 4
    assert stat.S_IMODE(found[secret / "key"].st_mode) == 0o440


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({}, 0o644),
        ({"securityContext": {"runAsUser": os.geteuid()}}, 0o600),
        ({"containers": [{"name": "a", "securityContext": {"runAsUser": os.geteuid()}}, {"name": "b"}]}, 0o644),
        ({"securityContext": {"fsGroup": GROUP}}, 0o640),
    ],
)
def test_a_token_is_private_where_its_reader_is_known(spec: Obj, mode: int, volumes: VolumeMaker, tmp_path: Path) -> None:
    volume = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    place = made(volumes, tmp_path / "pod", volume, **spec).path
    assert stat.S_IMODE((place / "token").stat().st_mode) == mode


def test_claims_are_folders_of_the_home_or_where_they_say(cluster: EmbeddedCluster, volumes: VolumeMaker, tmp_path: Path) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "c"}}
    assert made(volumes, tmp_path / "pod", volume).path == tmp_path / "claims/default/c"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o750)
    cluster.patch(CLAIM, "c", {"metadata": {"annotations": {"trainwright.dev/host-path": str(elsewhere)}}}, "default")
    assert made(volumes, tmp_path / "pod", volume, securityContext={"fsGroup": GROUP}).path == elsewhere
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o750, "a folder of the user's is not changed"


def test_a_claim_that_the_controller_made_is_open_and_one_that_a_container_closed_stays_closed(
    volumes: VolumeMaker, tmp_path: Path
) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "c"}}
    folder = tmp_path / "claims/default/c"
    folder.mkdir(parents=True, mode=0o700)
    made(volumes, tmp_path / "pod", volume)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    group = {"securityContext": {"fsGroup": GROUP}}
    made(volumes, tmp_path / "pod", volume, **group)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o2777
    (folder / "data").touch()
    folder.chmod(0o700)  # as a database does
    made(volumes, tmp_path / "pod", volume, **group)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    volumes.remove("u-1")
    made(volumes, tmp_path / "pod", volume, **group)
    assert stat.S_IMODE(folder.stat().st_mode) & 0o070 == 0o070, "the next pod mounts it anew"


def test_a_generic_ephemeral_volume_is_a_claim_of_the_pods_own(
    cluster: EmbeddedCluster, volumes: VolumeMaker, tmp_path: Path
) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volume = {"ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}}
    assert made(volumes, tmp_path / "pod", volume).path == tmp_path / "claims/default/p-v"
    claim = cluster.get(CLAIM, "p-v", "default")
    assert (claim["metadata"]["labels"], claim["spec"]["accessModes"]) == ({"a": "b"}, ["ReadWriteOnce"])
    assert [(owner["kind"], owner["uid"]) for owner in claim["metadata"]["ownerReferences"]] == [("Pod", "u-1")]
    other = pod_with({"name": "v", **volume})
    other["metadata"]["uid"] = "u-2"
    with pytest.raises(VolumeError, match=r"PVC default/p-v was not created for pod default/p \(pod is not owner\)"):
        volumes.make(other, tmp_path / "other")


@pytest.fixture
def guarded(cluster: EmbeddedCluster, tmp_path: Path) -> VolumeMaker:
    """Makes volumes in a home of the cluster that holds credentials, with one folder that everyone may choose."""
    home = tmp_path / "home"
    for folder in (home / "credentials", tmp_path / "named", tmp_path / "other"):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home / "credentials")
    policy = HostPathPolicy(home, home / "node/claims", (tmp_path / "named",))
    return VolumeMaker(cluster, policy.claims, lambda *_: "token", MemoryFolders(tmp_path / "shm"), host_paths=policy)


@pytest.mark.parametrize(
    "path", ["home", "home/credentials", "home/node/claims/default/d", "home/new", "link", "", "home/../home"]
)
@pytest.mark.parametrize("source", ["hostPath", "claim"])
def test_the_home_of_the_cluster_is_no_volume(
    path: str, source: str, cluster: EmbeddedCluster, guarded: VolumeMaker, tmp_path: Path
) -> None:
    place = f"{tmp_path}/{path}"
    volume: Obj = {"hostPath": {"path": place}}
    if source == "claim":
        cluster.patch(CLAIM, "c", {"metadata": {"annotations": {"trainwright.dev/host-path": place}}}, "default")
        volume = {"persistentVolumeClaim": {"claimName": "c"}}
    with pytest.raises(VolumeError, match=r"(is in|contains) the home of the cluster|must not contain '\.\.'"):
        made(guarded, tmp_path / "pod", volume)
    assert not (tmp_path / "home/new").exists()


def test_a_claims_own_folder_and_folders_outside_of_the_home_are_volumes(
    cluster: EmbeddedCluster, guarded: VolumeMaker, tmp_path: Path
) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "c"}}
    own = tmp_path / "home/node/claims/default/c"
    for place in (own, tmp_path / "other", tmp_path / "named/a", own):
        assert made(guarded, tmp_path / "pod", {"hostPath": {"path": str(tmp_path / "other")}}).path == tmp_path / "other"
        cluster.patch(CLAIM, "c", {"metadata": {"annotations": {"trainwright.dev/host-path": str(place)}}}, "default")
        assert made(guarded, tmp_path / "pod", volume).path == place


def test_a_claim_below_a_named_folder_does_not_follow_a_link_out_of_it(
    cluster: EmbeddedCluster, guarded: VolumeMaker, tmp_path: Path
) -> None:
    (tmp_path / "named/out").symlink_to(tmp_path / "other")
    for place in ("named/out", "named/out/new"):
        cluster.patch(CLAIM, "c", {"metadata": {"annotations": {"trainwright.dev/host-path": f"{tmp_path}/{place}"}}}, "default")
        with pytest.raises(VolumeError, match="by a symbolic link"):
            made(guarded, tmp_path / "pod", {"persistentVolumeClaim": {"claimName": "c"}})
    assert not list((tmp_path / "other").iterdir())


def test_the_template_of_an_ephemeral_volume_chooses_what_everyone_may(guarded: VolumeMaker, tmp_path: Path) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}

    def ephemeral(path: Path) -> Obj:
        metadata = {"annotations": {"trainwright.dev/host-path": str(path)}}
        return {"ephemeral": {"volumeClaimTemplate": {"metadata": metadata, "spec": spec}}}

    with pytest.raises(VolumeError, match="is not below a folder that the cluster's operator has named"):
        made(guarded, tmp_path / "pod", ephemeral(tmp_path / "other"))
    assert made(guarded, tmp_path / "pod", ephemeral(tmp_path / "named/a")).path == tmp_path / "named/a"


def test_a_new_claim_does_not_find_the_files_of_a_deleted_one(
    cluster: EmbeddedCluster, volumes: VolumeMaker, tmp_path: Path
) -> None:
    volume = {"persistentVolumeClaim": {"claimName": "c"}}
    (made(volumes, tmp_path / "pod", volume).path / "model").touch()
    claim = cluster.get(CLAIM, "c", "default")
    cluster.patch(CLAIM, "c", {"metadata": {"finalizers": None}}, "default")
    cluster.delete(CLAIM, "c", "default")
    cluster.create({**claim, "metadata": {"name": "c", "namespace": "default"}})
    assert not list(made(volumes, tmp_path / "pod", volume).path.iterdir())
    assert list((tmp_path / "claims/.deleted/default").glob("c.*/model"))


def test_a_token_that_is_not_issued_is_named(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    def refuse(*_: Any) -> str:
        raise NotFound('serviceaccounts "robot" not found')

    volumes = VolumeMaker(cluster, tmp_path / "claims", refuse, MemoryFolders(tmp_path / "shm"))
    with pytest.raises(VolumeError, match='failed to fetch token: serviceaccounts "robot" not found'):
        made(volumes, tmp_path / "pod", {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})
