# ruff: noqa: E501 - one pod a line
"""Pods that nobody would write, most of which are admitted: each is fields of the spec, merged into a pod of one container."""

from __future__ import annotations

from typing import Any

from factories import pod

LONG, DEEP = "x" * 100_000, "/".join(["d"] * 1000)
DOUBLING = [{"name": "A0", "value": "x" * 64}, *({"name": f"A{n}", "value": f"$(A{n - 1})" * 2} for n in range(1, 23))]
"""Together 512 MB; A10 has 64 KiB."""
_MOUNT = {"name": "v", "mountPath": "/v"}


def _container(**fields: Any) -> dict[str, Any]:
    return {"container": fields}


def _volume(source: dict[str, Any], **mount: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}], "container": {"volumeMounts": [{**_MOUNT, **mount}]}}


FIELDS: dict[str, dict[str, Any]] = {
    "null in host aliases": {"hostAliases": [None]},
    "host alias without names": {"hostAliases": [{"ip": "127.0.0.1"}]},
    "host alias of IPv6": {"hostAliases": [{"ip": "::ffff:1.2.3.4", "hostnames": ["a", "a"]}]},
    "lines in a host name": {"hostname": "a\nb"},
    "lines in hostnameOverride": {"hostnameOverride": "x\n127.0.0.1\ty"},
    "long host name": {"hostname": "a" * 63, "subdomain": "b" * 63, "setHostnameAsFQDN": True},
    "subdomain alone": {"subdomain": "s"},
    "the machine's network": {"hostNetwork": True, "hostname": "h", "subdomain": "s"},
    "the machine's processes": {"hostPID": True, "hostIPC": True},
    "shared processes": {"shareProcessNamespace": True},
    "odd resolver": {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["::1"], "searches": ["."], "options": [{"name": "ndots", "value": "9" * 300}]}},
    "null in volumes": {"volumes": [None]},
    "null in env": _container(env=[None]),
    "null in mounts": _container(volumeMounts=[None]),
    "null in args": _container(args=[None]),
    "no containers but init ones": {"initContainers": [{"name": "i", "image": "x", "command": ["true"]}]},
    "init container that stays": {"initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always", "command": ["sleep", "60"]}]},
    "init container that fails": {"initContainers": [{"name": "i", "image": "x", "command": ["false"]}], "restartPolicy": "Always"},
    "program that is not there": _container(command=["/no/such/program"]),
    "program that is a folder": _container(command=["/"]),
    "program without text": _container(command=[""]),
    "NUL in the program": _container(command=["a\0b"]),
    "NUL in an argument": _container(command=["true"], args=["a\0b"]),
    "NUL in a variable": _container(env=[{"name": "A", "value": "a\0b"}]),
    "long argument": _container(command=["true"], args=[LONG * 3]),
    "large environment": _container(env=[{"name": f"A{n}", "value": LONG} for n in range(8)]),
    "variables that double": _container(env=DOUBLING),
    "references without an end": _container(command=["true"], args=["$(" * 150_000], readinessProbe={"exec": {"command": ["$(" * 150_000]}}),
    "words that double": _container(env=DOUBLING[:11], command=["true", *["$(A10)"] * 1000]),
    "probe that doubles": _container(env=DOUBLING[:11], readinessProbe={"exec": {"command": ["true", *["$(A0)" * 9] * 9000]}}),
    "sub-path that doubles": {"volumes": [{"name": "v", "emptyDir": {}}], "container": {"env": DOUBLING[:11], "volumeMounts": [{**_MOUNT, "subPathExpr": "$(A10)" * 9000}]}},
    "variable that names itself": _container(env=[{"name": "A", "value": "$(A)$(A)"}]),
    "variable of a ConfigMap that is not there": _container(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k"}}}]),
    "working directory that is a file": _container(workingDir="/etc/passwd"),
    "relative working directory": _container(workingDir="a/b"),
    "deep working directory": _container(workingDir="/" + DEEP),
    "NUL in the working directory": _container(workingDir="/a\0b"),
    "user id beyond the largest": _container(securityContext={"runAsUser": 2**32 - 1}),
    "user id that is large": _container(securityContext={"runAsUser": 2**31 - 1, "runAsGroup": 2**31 - 1}),
    "groups without number": {"securityContext": {"supplementalGroups": [2**31 - 1] * 200, "fsGroup": 2**31 - 1}},
    "unknown capability": _container(securityContext={"capabilities": {"add": ["NO_SUCH", ""], "drop": ["ALL"]}}),
    "seccomp profile that is not there": _container(securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "no/such.json"}}),
    "sysctl": {"securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "x"}]}},
    "read-only root": _container(securityContext={"readOnlyRootFilesystem": True, "runAsNonRoot": True}),
    "mount over the root": _volume({"emptyDir": {}}, mountPath="/"),
    "mount over /proc": _volume({"emptyDir": {}}, mountPath="/proc"),
    "mount with dots": _volume({"emptyDir": {}}, mountPath="/a/../../b"),
    "mount with NUL": _volume({"emptyDir": {}}, mountPath="/a\0b"),
    "deep mount": _volume({"emptyDir": {}}, mountPath="/" + DEEP),
    "subPath out of the volume": _volume({"emptyDir": {}}, subPath="../../etc"),
    "memory without room": _volume({"emptyDir": {"medium": "Memory", "sizeLimit": "1"}}),
    "hostPath that is not there": _volume({"hostPath": {"path": "/no/such/path", "type": "Directory"}}),
    "claim that is not there": _volume({"persistentVolumeClaim": {"claimName": "none"}}),
    "projected volume of nothing": _volume({"projected": {"sources": []}}),
    "files at one path": _volume({"projected": {"sources": [{"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}}, {"downwardAPI": {"items": [{"path": "a/b", "fieldRef": {"fieldPath": "metadata.uid"}}]}}]}}),
    "probe every second of a port that is no name": _container(ports=[{"containerPort": 1, "name": "p"}], readinessProbe={"httpGet": {"port": "none", "path": "\n"}, "periodSeconds": 1}),
    "hook that never ends": _container(lifecycle={"postStart": {"exec": {"command": ["sleep", "600"]}}}),
    "limits of nothing": _container(resources={"limits": {"memory": "1", "cpu": "1m"}, "requests": {"memory": "1"}}),
    "resource that nobody has": _container(resources={"limits": {"example.com/none": "1"}}),
    "grace of years": {"terminationGracePeriodSeconds": 2**40},
    "deadline of a second": {"activeDeadlineSeconds": 1, "container": {"command": ["sleep", "600"]}},
    "gates": {"schedulingGates": [{"name": "example.com/never"}]},
    "another node": {"nodeName": "elsewhere"},
    "another scheduler": {"schedulerName": "none"},
}  # fmt: skip


def odd_pods() -> dict[str, dict[str, Any]]:
    """Return the manifests by what is odd about them."""
    return {what: pod(f"odd-{number}", **fields) for number, (what, fields) in enumerate(FIELDS.items())}
