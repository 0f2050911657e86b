"""Where data come from: a claim, an address, an object store; each is prepared by the initializer of a job."""

from __future__ import annotations

import json
import shutil

from support.ports import free_port, free_ports

from acceptance.checks import ends, job_is, says
from acceptance.scene import Scene
from acceptance.stage import Stage
from acceptance.told import Told

ROWS = "".join(json.dumps({"prompt": f"How many are {n} and {n}?", "completion": f" {2 * n}."}) + "\n" for n in range(8))
READS = ("--runtime-kind", "TrainingRuntime", "--runtime", "reads", "--workspace", "pvc://{claim}")
STORE = {"AWS_ACCESS_KEY_ID": "suite", "AWS_SECRET_ACCESS_KEY": "a secret of the suite", "AWS_REGION": "us-east-1"}
BUCKET = "suite"
# A server that needs no package; its files lie in the claim.
SERVES = """
import http.server, os, sys
os.chdir("/claim/served")
http.server.test(http.server.SimpleHTTPRequestHandler, port=int(sys.argv[1]), bind="0.0.0.0")
"""
PUTS = """
import boto3, os, sys
client = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1")
client.put_object(Bucket=sys.argv[2], Key=sys.argv[3], Body=sys.argv[4].encode())
"""


def _reads(stage: Stage, uri: str, **env: object) -> Told:
    variables = ("--dataset-env", json.dumps(env)) if env else ()
    return stage.trainwright("submit", "--run-id", "{name}", *READS, "--dataset-uri", uri, *variables, "--wait", "--logs")


def _from_claim(stage: Stage) -> Told:
    stage.lay("sources/rows.jsonl", ROWS)
    return _reads(stage, "pvc://{claim}/sources/rows.jsonl")


def _from_address(stage: Stage) -> Told:
    stage.lay("served/rows.jsonl", ROWS)
    port = free_port()
    host = stage.serve("files", port, ["python3", "-c", SERVES, str(port)])
    return _reads(stage, f"http://{host}:{port}/rows.jsonl", TRAINWRIGHT_ALLOW_HTTP="true")


def start_store(stage: Stage) -> str:
    """A real S3 server in the cluster, without TLS as most of those in clusters; returns its address."""
    weed = shutil.which("weed") or ""
    has_weed = "import os, shutil; print(bool(shutil.which('weed')) or os.path.exists('/claim/bin/weed'))"
    if stage.in_claim(has_weed).strip() == "False":
        keeper = stage.admin.keeper(stage.namespace)
        stage.in_claim("import os; os.makedirs('/claim/bin', exist_ok=True)")
        stage.admin.kubectl("cp", weed, f"{stage.namespace}/{keeper}:/claim/bin/weed", seconds=600)
    ports = free_ports(10)
    kinds = ("s3", "master", "volume", "filer", "admin")
    options = [f"-{kind}.port={ports[2 * at]} -{kind}.port.grpc={ports[2 * at + 1]}" for at, kind in enumerate(kinds)]
    off = "-master.telemetry=false -webdav=false -admin.ui=false -s3.port.iceberg=0 -s3.port.lance=0"
    program = (
        "mkdir -p /tmp/s3; chmod +x /claim/bin/weed 2>/dev/null; PATH=$PATH:/claim/bin; cd /tmp; "
        f"exec weed mini -dir=/tmp/s3 -ip=127.0.0.1 -ip.bind=0.0.0.0 -bucket={BUCKET} {off} {' '.join(options)}"
    )
    host = stage.serve("store", ports[0], ["sh", "-c", program], **STORE)
    return f"http://{host}:{ports[0]}"


def _from_store(stage: Stage) -> Told:
    endpoint = start_store(stage)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": stage.admin.metadata("store", stage.namespace)}
    stage.apply({**secret, "stringData": STORE})
    keeper = stage.admin.keeper(stage.namespace)
    env = [f"{name}={value}" for name, value in STORE.items()]
    put = ("exec", keeper, "-n", stage.namespace, "--", "env", *env, "python3", "-c", PUTS, endpoint, BUCKET, "rows.jsonl", ROWS)
    stage.admin.kubectl(*put)
    keys = {name: {"valueFrom": {"secretKeyRef": {"name": "store", "key": name}}} for name in STORE}
    return _reads(stage, f"s3://{BUCKET}/rows.jsonl", AWS_ENDPOINT_URL=endpoint, AWS_ALLOW_HTTP="true", **keys)


READ = (ends(0), says("rows: .*How many are 3 and 3"), job_is("Complete"))

SCENES = [
    Scene("from the claim", _from_claim, READ),
    Scene("from an address", _from_address, READ),
    Scene("from an object store without TLS", _from_store, READ),
    Scene(
        "from an address that is not there",
        lambda stage: _reads(stage, "http://nobody.{namespace}.svc:8080/rows.jsonl", TRAINWRIGHT_ALLOW_HTTP="true"),
        (ends(10), says("dataset-initializer", "nobody"), job_is("Failed")),
        marks=("long",),
    ),
    Scene(
        "from a claim that has no such file",
        lambda stage: _reads(stage, "pvc://{claim}/sources/nothing.jsonl"),
        (ends(10), says("dataset-initializer", "nothing.jsonl"), job_is("Failed")),
    ),
]
