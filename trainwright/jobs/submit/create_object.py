"""Creates one object of a manifest, at most once, although requests fail or their answers get lost.

Such an object has no owner by which a second try would recognize it: that it did not exist before, and has the content that was
sent, tells whether it was created here. Compared are the fields that an author sets.
"""

from __future__ import annotations

import random
from typing import Any, Unpack

from trainwright.api import names
from trainwright.api.errors import AlreadyExists, ApiError, Forbidden, NotFound, ServiceUnavailable, TooManyRequests
from trainwright.api.generated_names import SUFFIX_LENGTH, SUFFIX_LETTERS, generated_name
from trainwright.api.kinds import Kind, kind_of
from trainwright.api.objects import Obj, annotations_of, described, name_of, namespace_of
from trainwright.api.quantities import parse_quantity
from trainwright.cluster.protocol import Cluster, CreateOptions
from trainwright.cluster.retrying import RETRY_SECONDS, RetryingCluster

_IDENTITY = ("name", "namespace")
_GROUPS = ("labels", "annotations")


class LostAnswer(AlreadyExists):
    """The object exists after an answer got lost, and it cannot be told, or is unlikely, that it was created here."""


def create_object(cluster: Cluster, obj: Obj, *, retry_seconds: float = RETRY_SECONDS, **options: Unpack[CreateOptions]) -> Obj:
    """Create an object and return it as stored. Transient errors are retried for `retry_seconds`.

    If an answer got lost, an object that did not exist before and has the content that was sent is the one that was created.
    Raises AlreadyExists (LostAnswer if it is unclear whether it was created here), Invalid, Forbidden, and ServiceUnavailable,
    which says so if the object may have been created.
    """
    kind, retrying = kind_of(obj), RetryingCluster(cluster, seconds=retry_seconds)
    if kind is None or options.get("dry_run"):  # a dry run leaves nothing behind that could be found
        return retrying.create(obj, **options)
    obj = _named(obj)
    _check_absent(retrying, kind, obj)
    may_exist = False

    def attempt() -> Obj:
        nonlocal may_exist
        try:
            return cluster.create(obj, **options)
        except AlreadyExists:
            if not may_exist:  # somebody else has created it since it was found absent
                raise
            return _created(cluster, kind, obj)
        except ApiError as error:  # the request may have succeeded, unless the server refused to take it
            may_exist = may_exist or (error.retryable and not isinstance(error, TooManyRequests))
            raise

    try:
        return retrying.with_retries(attempt)
    except ApiError as error:
        if not may_exist or not error.retryable:  # no earlier try can have created it, or the error is final
            raise
        return _confirmed(cluster, kind, obj, error)


def _named(obj: Obj) -> Obj:
    """Return the object with the name that the server would generate, so that a second try has the same name."""
    metadata = obj["metadata"]
    if metadata.get("name") or not metadata.get("generateName"):
        return obj
    suffix = "".join(random.choices(SUFFIX_LETTERS, k=SUFFIX_LENGTH))
    return {**obj, "metadata": {**metadata, "name": generated_name(metadata["generateName"], suffix)}}


def _check_absent(cluster: Cluster, kind: Kind, obj: Obj) -> None:
    """Raise AlreadyExists if the object exists; unknown without permission to read it."""
    try:
        cluster.get(kind, name_of(obj), namespace_of(obj) if kind.namespaced else None)
    except (NotFound, Forbidden):  # absent, or unknown: the creation decides
        return
    raise AlreadyExists(f'{kind.resource} "{name_of(obj)}" already exists')


def _created(cluster: Cluster, kind: Kind, sent: Obj) -> Obj:
    """Return the existing object if it was created by an earlier try. Raises AlreadyExists if it was not, or cannot be read."""
    what = f'{kind.resource} "{name_of(sent)}" already exists'
    try:
        existing = cluster.get(kind, name_of(sent), namespace_of(sent) if kind.namespaced else None)
    except Forbidden as error:
        message = f"{what}; the answer to an earlier try was lost, so it was probably created by it, but {error.message}"
        raise LostAnswer(message) from None
    if not is_stored_form(existing, sent):
        raise LostAnswer(f"{what}, with other content than was sent")
    return existing


def _confirmed(cluster: Cluster, kind: Kind, sent: Obj, error: ApiError) -> Obj:
    """Return the object if it was created, after retries have ended with `error`. Raises AlreadyExists, ServiceUnavailable."""
    try:
        existing = _created(cluster, kind, sent)
    except NotFound:  # no try has succeeded
        raise error from None
    except ApiError as unread:
        if not unread.retryable:  # it exists, and is not ours
            raise
        raise _unconfirmed(sent, error) from unread
    if names.SUSPENDED_BY_ANNOTATION in annotations_of(existing):  # its JobSet still waits for its companions
        raise _unconfirmed(sent, error)
    return existing


def _unconfirmed(sent: Obj, error: ApiError) -> ServiceUnavailable:
    return ServiceUnavailable(f"{error.message}; {described(sent)} may have been created: check before you submit it again")


def is_stored_form(stored: Obj, sent: Obj) -> bool:
    """Whether `stored` can be what a server made of `sent`: it contains all that was sent, besides what admission may change."""
    return _contains(_comparable(stored, sent), _comparable(sent, sent))


def _contains(stored: Any, sent: Any) -> bool:
    if sent is None or (stored is None and not sent):  # servers omit empty values
        return True
    if isinstance(sent, dict):
        return isinstance(stored, dict) and all(_contains(stored.get(key), value) for key, value in sent.items())
    if isinstance(sent, list):
        return isinstance(stored, list) and len(stored) == len(sent) and all(map(_contains, stored, sent))
    return bool(stored == sent) or _are_equal_quantities(stored, sent)


def _are_equal_quantities(stored: Any, sent: Any) -> bool:
    """Whether both are the same amount, such as 1000m and 1, which a server may store in another form."""
    if not isinstance(stored, str | int) or not isinstance(sent, str | int):
        return False
    try:
        return parse_quantity(stored) == parse_quantity(sent)
    except ValueError:
        return False


def _comparable(obj: Obj, sent: Obj) -> Obj:
    reduced = comparable(obj, sent)
    reduced.pop("stringData", None)  # of a Secret; stored as `data`
    reduced["spec"].pop("suspend", None)  # set by queues at creation
    return reduced


def comparable(obj: Obj, manifest: Obj) -> Obj:
    """Return `obj` with only the labels and annotations that the manifest sets, and without fields that others manage.

    `spec.suspend` belongs to the queue unless the manifest sets it, as do runtime patches by managers that the manifest does not
    name.
    """
    desired, declared_metadata = manifest.get("spec") or {}, manifest["metadata"]
    metadata = {name: obj["metadata"][name] for name in _IDENTITY if name in obj["metadata"]}
    for group in _GROUPS:
        declared = declared_metadata.get(group) or {}
        kept = {name: value for name, value in (obj["metadata"].get(group) or {}).items() if name in declared}
        metadata |= {group: kept} if kept else {}
    rest = {name: value for name, value in obj.items() if name not in ("metadata", "status", "spec")}
    spec = dict(obj.get("spec") or {})
    if "suspend" not in desired:
        spec.pop("suspend", None)
    managers = {patch.get("manager") for patch in desired.get("runtimePatches") or []}
    ours = [patch for patch in spec.pop("runtimePatches", None) or [] if patch.get("manager") in managers]
    patches = [{name: value for name, value in patch.items() if name != "time"} for patch in ours]
    return {**rest, "metadata": metadata, "spec": spec | ({"runtimePatches": patches} if patches else {})}
