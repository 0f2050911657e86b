"""The Kubeflow SDK, unmodified, in an environment of its own, against a control plane that runs what it submits.

The checks are in checks/kubeflow_sdk.py. What pods reach besides the API - a hub, an S3 server, the SDK itself - is on this
machine, so on another cluster those checks are left out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator

import pytest
from outcomes import Run, checks_of, settle
from servers.hub_server import HubServer, Repository
from support.client_environments import Unavailable, client_environment
from support.cluster_under_test import other_cluster

pytestmark = pytest.mark.slow

NAME, REQUIREMENT = "kubeflow-0.5", "kubeflow==0.5.*"
ROWS = "".join(json.dumps({"prompt": f"question {number}", "completion": "answer"}) + "\n" for number in range(20)).encode()
MODEL = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": (2).to_bytes(8, "little") + b"{}",
}
BUCKET = "trainwright"


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    """A hub with a dataset and a model that needs a token."""
    server = HubServer()
    server.repositories = {"datasets/o/data": Repository(), "models/o/model": Repository(token="a-token")}
    server.repositories["datasets/o/data"].push({"rows.jsonl": ROWS})
    server.repositories["models/o/model"].push(MODEL)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def reachable(request: pytest.FixtureRequest) -> dict[str, str]:
    """What pods of the embedded cluster can reach on this machine, as variables of the script."""
    if other_cluster() is not None:
        return {}
    try:
        python = client_environment(NAME, [REQUIREMENT])
    except Unavailable as error:
        pytest.skip(str(error))
    hub, s3 = request.getfixturevalue("hub"), request.getfixturevalue("s3_server")
    key = f"{os.urandom(6).hex()}/rows.jsonl"
    s3.client().put_object(Bucket=BUCKET, Key=key, Body=ROWS)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return {
        "CHECK_HUB": hub.url,
        "CHECK_SITE": str(python.parents[1] / "lib" / version / "site-packages"),
        "CHECK_S3_URI": f"s3://{BUCKET}/{key}",
        "CHECK_S3_ENDPOINT": s3.endpoint,
        "CHECK_S3_KEY": s3.access_key_id,
        "CHECK_S3_SECRET": s3.secret_access_key,
    }


@pytest.mark.parametrize("check", checks_of("kubeflow_sdk"))
def test_kubeflow_sdk(
    check: str, checked: Callable[..., Run], reachable: dict[str, str], record_property: Callable[[str, object], None]
) -> None:
    record_property("area", "Kubeflow SDK 0.5")
    settle(checked("kubeflow_sdk", NAME, REQUIREMENT, **reachable), check, {})
