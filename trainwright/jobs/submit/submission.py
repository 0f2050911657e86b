"""What a step submits, where, and as whom: made once, by the component, the operator or the command, and handed on.

The credentials that the submitter has and the pods of the step need are a Secret for as long as the job of the step. Its values are
in no TrainJob, log or error: pods refer to it. The job owns it, so that it goes with the job, and the step deletes it as soon as
the job has ended. It is written, never read: permission to read Secrets would be permission to read all of them.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from trainwright.api.kinds import SECRET
from trainwright.api.objects import Obj, uid_of
from trainwright.cluster.protocol import Cluster
from trainwright.jobs.credentials.store_variables import HUB_KEY
from trainwright.jobs.diagnosis.errors import TrainJobDeleted, TrainJobFailed
from trainwright.jobs.request.setting_values import Variables
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_folder import label_value
from trainwright.jobs.state.waiters import Workflow
from trainwright.jobs.submit.owned_objects import trainjob_reference

LatestCheckpoint = Callable[[Identity], str]
"""Returns the URI of the latest export of what a step has trained in its folder, "" for none. A callback, because stores belong to a
higher layer."""
SUFFIX = "-credentials"
_ADVICE = "grant create, patch and delete on secrets (`trainwright rbac --credentials`), or name a Secret of the cluster"
_ENDED = (TrainJobFailed, TrainJobDeleted)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Submission:
    """The job of a step: its request, for the step with this identity, on a cluster and in a namespace."""

    cluster: Cluster
    request: TrainRequest
    identity: Identity
    namespace: str
    latest_checkpoint: LatestCheckpoint | None = None
    """With `resume` = auto a new job gets the export that it returns, for a volume without checkpoints."""
    workflow: Workflow | None = None
    """That of the pipeline, to which the job is tied, see `tie_to_workflow`."""
    credentials: StepCredentials | None = None
    """Written to a Secret that the job owns, and refers to where the request names none."""


@dataclass(frozen=True)
class StepCredentials:
    """Environment variables with their values, such as AWS_SECRET_ACCESS_KEY and HF_TOKEN."""

    values: Mapping[str, str] = field(repr=False)

    def __bool__(self) -> bool:
        return bool(self.values)

    def variables(self, identity: Identity) -> Variables:
        """Return references to all values, as the setting `env` takes them."""
        secret = secret_name(identity)
        return {name: {"valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in sorted(self.values)}

    def referred_to_by(self, request: TrainRequest, identity: Identity) -> TrainRequest:
        """Return the request with the Secret where it names none: `hub_secret` for the hub's token, `store_secret` for the rest."""
        named = {"hub_secret": HUB_KEY in self.values, "store_secret": bool(set(self.values) - {HUB_KEY})}
        secrets = request.secrets
        missing = {name: secret_name(identity) for name, has_values in named.items() if has_values and not getattr(secrets, name)}
        return request.having(secrets=secrets.having(**missing)) if missing else request


def secret_name(identity: Identity) -> str:
    """Return the name of a step's Secret: the same for each try, so that a retry finds what an earlier one has left."""
    return f"{identity.name()}{SUFFIX}"


def ensure_credentials(cluster: Cluster, identity: Identity, namespace: str, credentials: StepCredentials) -> str:
    """Create the Secret of a job that is about to be created or resumed, or renew its values.

    Returns the UID of a Secret that was created, "" for one that was there. Raises ApiError; Invalid if one of this name is not ours.
    """
    data = {name: base64.b64encode(value.encode()).decode() for name, value in credentials.values.items()}
    labels = {
        names.MANAGED_BY_LABEL: "trainwright",
        names.RUN_LABEL: label_value(identity.run),
        names.STEP_LABEL: label_value(identity.step),
    }
    metadata = {"name": secret_name(identity), "namespace": namespace, "labels": labels}
    try:
        try:
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}
            return uid_of(cluster.create(secret))
        except AlreadyExists:  # of an earlier attempt; its values may be old
            _change_own(cluster, identity, namespace, "/data", data)
            return ""
    except Forbidden as error:
        raise Forbidden(f"the Secret with the credentials cannot be written: {error.message}; {_ADVICE}") from error


def _change_own(cluster: Cluster, identity: Identity, namespace: str, path: str, value: Any) -> None:
    """Set a field of the Secret if it has our label; the API server compares, since Secrets are not read. Raises Invalid if not."""
    label = names.MANAGED_BY_LABEL.replace("~", "~0").replace("/", "~1")
    patch = [
        {"op": "test", "path": f"/metadata/labels/{label}", "value": "trainwright"},
        {"op": "add", "path": path, "value": value},
    ]
    try:
        cluster.patch(SECRET, secret_name(identity), patch, namespace, patch_type="json")
    except Invalid as error:
        raise Invalid(
            f"the Secret {namespace}/{secret_name(identity)} exists and is not Trainwright's, so its values are kept: "
            "delete it, or use another run id"
        ) from error


def set_credentials_owner(cluster: Cluster, identity: Identity, trainjob: Obj, credentials: StepCredentials) -> None:
    """Make the job the owner of its step's Secret; writes it again if it was deleted with an earlier job. Raises ApiError."""
    namespace = str(trainjob["metadata"]["namespace"])
    owners = [trainjob_reference(trainjob)]
    try:
        _change_own(cluster, identity, namespace, "/metadata/ownerReferences", owners)
    except NotFound:  # garbage collection has deleted it with the job of an earlier attempt
        ensure_credentials(cluster, identity, namespace, credentials)
        _change_own(cluster, identity, namespace, "/metadata/ownerReferences", owners)


def discard_credentials(cluster: Cluster, identity: Identity, namespace: str, uid: str) -> None:
    """Delete the very Secret that was created for a job which then was not."""
    try:
        cluster.delete(SECRET, secret_name(identity), namespace, uid=uid)
    except (NotFound, Conflict):  # gone, or written again by another try: that one is not ours to delete
        return
    except ApiError as error:
        log.warning("event=credentials_not_deleted name=%s error=%s", secret_name(identity), error.message)


def delete_credentials(cluster: Cluster, identity: Identity, namespace: str) -> None:
    """Delete a step's Secret after its job has ended. If that fails, a warning says so: the job's deletion removes it, too."""
    try:
        cluster.delete(SECRET, secret_name(identity), namespace)
    except NotFound:  # it went with its job, or another try of the step was first
        return
    except ApiError as error:
        log.warning("event=credentials_not_deleted name=%s error=%s", secret_name(identity), error.message)


@contextmanager
def credentials_until_end(
    cluster: Cluster, identity: Identity, namespace: str, credentials: StepCredentials | None
) -> Iterator[None]:
    """Delete the step's Secret when the block returns or its job has failed; a job that may go on keeps it."""
    try:
        yield
    except _ENDED:
        if credentials:
            delete_credentials(cluster, identity, namespace)
        raise
    if credentials:
        delete_credentials(cluster, identity, namespace)
