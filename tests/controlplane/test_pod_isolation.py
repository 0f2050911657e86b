"""What a pod on the node finds and leaves open: no stored credentials, no port that others reach, and a word on what is not kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from factories import pod, trainjob
from support.pod_isolation import pods_are_isolated
from support.waiting import eventually

from trainwright.api.kinds import EVENT, POD
from trainwright.api.objects import name_of
from trainwright.embedded.plane import ControlPlane
from trainwright.jobs import wait_for
from trainwright.jobs.logs.log_options import LogSelector
from trainwright.jobs.logs.read_logs import read_logs

pytestmark = pytest.mark.medium

LISTENING = """
import json, os, torch.distributed
torch.distributed.init_process_group("gloo")
torch.distributed.barrier()
sockets = {}
for table in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(table).read().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A":
            sockets[f"socket:[{fields[9]}]"] = fields[1]
own = {os.readlink(f"/proc/{pid}/fd/{fd}") for pid in (os.getpid(), os.getppid()) for fd in os.listdir(f"/proc/{pid}/fd")
       if os.path.islink(f"/proc/{pid}/fd/{fd}")}
print("listening", json.dumps(sorted(address for name, address in sockets.items() if name in own)), flush=True)
torch.distributed.barrier()
"""


ASKING = """
from kubernetes import client, config
config.load_incluster_config()
api = client.CoreV1Api()
print("pods", [pod.metadata.name for pod in api.list_namespaced_pod("default").items])
try:
    api.list_namespaced_secret("default")
except client.ApiException as error:
    print("secrets", error.status)
"""


LOOKING = """
import os, boto3, huggingface_hub
print(huggingface_hub.get_token(), boto3.Session().get_credentials())
print(os.listdir(os.path.expanduser("~")))
"""


def lines_of(plane: ControlPlane, job: dict[str, Any]) -> list[str]:
    wait_for(plane.cluster, job)
    return [line.text for line in read_logs(plane.cluster, job, LogSelector(rank=None))]


def test_the_home_of_a_pod_is_its_own_and_goes_with_it(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stored in (".aws/credentials", ".cache/huggingface/token", "hf/token"):
        (tmp_path / stored).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / stored).write_text("canary-credential")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / ".aws/credentials"))
    program = tmp_path / "look.py"
    program.write_text(LOOKING)
    job = plane.cluster.create(trainjob(script=f'echo kept > ~/file; echo "mode $(stat -c %a ~)"; {sys.executable} {program}'))
    mode, tokens, files = lines_of(plane, job)[-3:]
    assert mode in ("mode 700", "mode 711")  # the latter where the interpreter's folder is seen below it
    assert tokens == "None None"
    assert "'file'" in files
    assert not {".aws", ".cache", "hf"} & {path.strip("'") for path in files[1:-1].split(", ")}
    (pod,) = plane.cluster.list(POD, "default").items
    assert not (plane._home.path / "node/pods" / pod["metadata"]["uid"] / "home").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/net/tcp")
def test_only_torchs_own_store_listens_on_more_than_the_loopback_interface(plane: ControlPlane, tmp_path: Path) -> None:
    program = tmp_path / "listening.py"
    program.write_text(LISTENING)
    job = plane.cluster.create(trainjob(script=f"torchrun {program}", nodes=2))
    told = [json.loads(line.removeprefix("listening ")) for line in lines_of(plane, job) if line.startswith("listening ")]
    addresses = [address.split(":") for each in told for address in each]
    loopback = [port for host, port in addresses if host in ("0100007F", "00000000000000000000000001000000")]
    others = [port for host, port in addresses if host not in ("0100007F", "00000000000000000000000001000000")]
    assert len(told) == 2
    assert len(loopback) >= 2  # one of gloo in each process
    assert len(others) <= 1  # the store of rank 0


def test_an_event_says_what_is_not_honoured(plane: ControlPlane) -> None:
    made = plane.cluster.create(pod("hardened", script="true", container={"securityContext": {"privileged": True}}))
    eventually(lambda: events_about(plane, made), what="an event")
    (event,) = events_about(plane, made)
    assert event["type"] == "Normal"
    assert "spec.containers{main}.securityContext.privileged" in event["message"]


NUL = "a\0b"


EMPTY = {"volumes": [{"name": "v", "emptyDir": {}}]}
NOT_STARTABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "command": ({"command": ["echo", NUL]}, {}),
    "variable": ({"env": [{"name": "A", "value": NUL}]}, {}),
    "folder": ({"workingDir": f"/{NUL}"}, {}),
    "message": ({"terminationMessagePath": f"/{NUL}"}, {}),
    "mount": ({"volumeMounts": [{"name": "v", "mountPath": f"/{NUL}"}]}, EMPTY),
    "host-path": ({}, {"volumes": [{"name": "v", "hostPath": {"path": f"/{NUL}"}}]}),
    "proc": ({"volumeMounts": [{"name": "v", "mountPath": "/proc"}]}, EMPTY),
}


def test_pods_that_the_kernel_cannot_start_say_why(plane: ControlPlane, caplog: pytest.LogCaptureFixture) -> None:
    """Never Pending without an Event, nor a stack trace every second."""
    made = [plane.cluster.create(pod(name, script="true", container=own, **spec)) for name, (own, spec) in NOT_STARTABLE.items()]
    eventually(lambda: all(_has_warning(plane, each) for each in made), what="warnings")
    assert not [record for record in caplog.records if record.exc_info]
    plane.cluster.create(pod("next", script="true"))
    eventually(lambda: (plane.cluster.get(POD, "next", "default").get("status") or {}).get("phase") == "Succeeded")


def _has_warning(plane: ControlPlane, obj: dict[str, Any]) -> bool:
    events = plane.cluster.list(EVENT, "default").items
    return any(event["involvedObject"]["name"] == name_of(obj) and event["type"] == "Warning" for event in events)


def events_about(plane: ControlPlane, obj: dict[str, Any]) -> list[dict[str, Any]]:
    events = plane.cluster.list(EVENT, "default").items
    return [event for event in events if event["involvedObject"]["name"] == name_of(obj) and event["reason"] == "NotHonoured"]


def test_a_pod_has_the_rights_of_its_service_account(plane: ControlPlane) -> None:
    if not pods_are_isolated(plane.cluster):
        pytest.skip("the official client reads the token at a fixed path, which only an isolated pod has")
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader", "namespace": "default"}}
    account = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    plane.cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": role["metadata"]})
    plane.cluster.create({**role, "kind": "Role", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]})
    plane.cluster.create({**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [account]})
    plane.cluster.create(pod("asks", container={"command": ["python", "-c", ASKING]}, serviceAccountName="reader"))
    eventually(lambda: (plane.cluster.get(POD, "asks", "default").get("status") or {}).get("phase") == "Succeeded", 60)
    assert b"".join(plane.cluster.logs("asks", "default")).splitlines() == [b"pods ['asks']", b"secrets 403"]
