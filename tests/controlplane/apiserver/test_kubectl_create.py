"""Every generator of `kubectl create` for a served kind: kubectl sends these as protobuf, and stores what it would send as JSON."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from typing import Any

import pytest

pytestmark = [pytest.mark.medium, pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")]

GENERATORS = """
quota q --hard=cpu=1,pods=2 --scopes=BestEffort
configmap c --from-literal=a=b
secret generic s --from-literal=a=b
secret docker-registry dr --docker-username=u --docker-password=p
serviceaccount sa
role r --verb=get,list --resource=pods,jobs.batch --resource-name=x
rolebinding rb --role=r --serviceaccount=default:sa --group=g
clusterrole cr --verb=get --non-resource-url=/logs/*
clusterrole agg --aggregation-rule=a=b
clusterrolebinding crb --clusterrole=cr --user=x
deployment d --image=x --replicas=3 --port=80
job j --image=x -- true
namespace nn
service clusterip sc --tcp=80:8080
service externalname se --external-name=a.b
service loadbalancer sl --tcp=80
priorityclass pc --value=1000 --description=text
pdb p --selector=a=b --min-available=50%
pdb p2 --selector=a=b --max-unavailable=1
""".strip().splitlines()


@pytest.fixture
def kubectl(peer: Any) -> Any:
    environment = {**os.environ, "KUBECONFIG": str(peer.kubeconfig)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["kubectl", *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run


def missing(wanted: Any, found: Any, path: str = "") -> list[str]:
    """The paths of what is wanted and not found. Empty values may be left out."""
    if isinstance(wanted, dict):
        have = found if isinstance(found, dict) else {}
        given = {key: value for key, value in wanted.items() if value not in (None, {}, [])}
        return [each for key, value in given.items() for each in missing(value, have.get(key), f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [each for index, value in enumerate(wanted) for each in missing(value, found[index], f"{path}[{index}]")]
    return [] if wanted == found else [path]


def test_all_generators_store_what_they_print(kubectl: Any) -> None:
    for generator in GENERATORS:
        name, *rest = shlex.split(generator)
        at = rest.index("--") if "--" in rest else len(rest)
        arguments = ["create", name, *rest[:at], "-o", "json"]
        sent = kubectl(*arguments, "--dry-run=client", *rest[at:])
        done = kubectl(*arguments, *rest[at:])
        assert done.returncode == 0, (generator, done.stderr)
        wanted = json.loads(sent.stdout)
        wanted.pop("status", None)
        assert not missing(wanted, json.loads(done.stdout)), generator
        assert ("does not enforce it" in done.stderr) is (name == "quota"), done.stderr
