"""The errors of a server: those that no client needs to tell apart, and the usual ones in kube-apiserver's words."""

from __future__ import annotations

from trainwright.api.errors import ApiError, Conflict, Forbidden, NotFound
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj


class NotAcceptable(ApiError):
    """The client can read nothing that we can write."""

    code, reason = 406, "NotAcceptable"


class TooLarge(ApiError):
    """The body of a request is over the limit."""

    code, reason = 413, "RequestEntityTooLarge"


class StorageFailed(ApiError):
    """The journal could not be written; nothing was changed."""

    code, reason = 507, "InternalError"


class Unspecified(ApiError):
    """A mistake of the client for which kube-apiserver has no reason, only a 500 and a text."""

    def status(self) -> Obj:
        status = super().status()
        del status["reason"]
        return status


def details_of(kind: Kind, name: str, *, by_kind: bool = False) -> Obj:
    """The `details` of a Status about one object; some name its kind instead of its resource."""
    return _trimmed({"name": name, "group": kind.group, "kind": kind.kind if by_kind else kind.plural})


def conflict(kind: Kind, name: str, why: str, *, by_kind: bool = False) -> Conflict:
    noun = (f"{kind.kind}.{kind.group}" if kind.group else kind.kind) if by_kind else kind.resource
    return Conflict(f'Operation cannot be fulfilled on {noun} "{name}": {why}', details=details_of(kind, name, by_kind=by_kind))


def modified(kind: Kind, name: str) -> Conflict:
    """The answer to a write that was made to an older version."""
    return conflict(kind, name, "the object has been modified; please apply your changes to the latest version and try again")


def _trimmed(details: Obj) -> Obj:
    return {key: value for key, value in details.items() if value}


def not_found(kind: Kind, name: str) -> NotFound:
    """The answer for an object that does not exist."""
    return NotFound(f'{kind.resource} "{name}" not found', details=details_of(kind, name))


def forbidden(kind: Kind, name: str, why: str, causes: list[Obj] | None = None) -> Forbidden:
    """The answer for something that nobody may do."""
    details = details_of(kind, name)
    return Forbidden(
        f'{kind.resource} "{name}" is forbidden: {why}', details={**details, "causes": causes} if causes else details
    )
