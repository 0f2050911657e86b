"""Tokens bound to objects that exist: of the default account, and of the pods of a TrainJob."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from factories import job, jobset, pod, replicated_job

from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOB, JOBSET, POD, SERVICE_ACCOUNT, TRAINJOB, Kind
from trainwright.api.objects import owner_reference, uid_of
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer


def account_token(
    server: ResourceServer, tokens: Tokens, audience: str, *, namespace: str = "default", seconds: int = 600, **bound: Any
) -> str:
    """A token of the default account of a namespace."""
    uid = uid_of(server.get(SERVICE_ACCOUNT, namespace, "default").object)
    objects = {"serviceaccount": {"name": "default", "uid": uid}, **bound}
    return tokens.issue([audience], namespace, "default", objects, seconds, datetime.now(UTC))


def pod_token(server: ResourceServer, tokens: Tokens, audience: str, found: dict[str, Any], **options: Any) -> str:
    """A token of the default account that is bound to a pod."""
    metadata = found["metadata"]
    bound = {"pod": {"name": metadata["name"], "uid": metadata["uid"]}}
    return account_token(server, tokens, audience, namespace=metadata["namespace"], **bound, **options)


def pod_of_trainjob(server: ResourceServer, name: str, namespace: str = "default") -> dict[str, Any]:
    """The pod of a TrainJob (which may be missing), made with the objects between them if it is not there."""
    try:
        owner = server.get(TRAINJOB, namespace, name).object
    except NotFound:
        owner = {"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": {"name": name, "uid": "gone"}}
    for kind, built in (
        (JOBSET, jobset(name, replicated_job(), namespace=namespace)),
        (JOB, job(name, namespace=namespace)),
        (POD, pod(f"{name}-0", namespace=namespace)),
    ):
        owner = _made(server, kind, built, owner)
    return owner


def _made(server: ResourceServer, kind: Kind, built: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    namespace = built["metadata"]["namespace"]
    try:
        return server.get(kind, namespace, built["metadata"]["name"]).object
    except NotFound:
        built["metadata"]["ownerReferences"] = [owner_reference(owner)]
        return server.create(kind, namespace, built).object
