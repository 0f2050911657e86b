"""API errors that only the server raises, and constructors for common ones with kube-apiserver's messages."""

from __future__ import annotations

from trainwright.api.errors import ApiError, Conflict, Forbidden, NotFound
from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj


class NotAcceptable(ApiError):
    """The Accept header lists no supported media type."""

    code, reason = 406, "NotAcceptable"


class TooLarge(ApiError):
    """A request body exceeds the size limit."""

    code, reason = 413, "RequestEntityTooLarge"


class StorageFailed(ApiError):
    """Writing to the journal failed; nothing was changed."""

    code, reason = 507, "InternalError"


class UnknownReasonError(ApiError):
    """A client error that kube-apiserver reports as a 500 with a message and no reason."""

    def status(self) -> Obj:
        status = super().status()
        del status["reason"]
        return status


def status_details(kind: Kind, name: str, *, by_kind: bool = False) -> Obj:
    """The `details` of a Status for one object. With `by_kind`, `kind` is the kind instead of the resource."""
    details = {"name": name, "group": kind.group, "kind": kind.kind if by_kind else kind.plural}
    return {key: value for key, value in details.items() if value}


def conflict_error(kind: Kind, name: str, why: str, *, by_kind: bool = False) -> Conflict:
    noun = (f"{kind.kind}.{kind.group}" if kind.group else kind.kind) if by_kind else kind.resource
    return Conflict(
        f'Operation cannot be fulfilled on {noun} "{name}": {why}', details=status_details(kind, name, by_kind=by_kind)
    )


def modified_error(kind: Kind, name: str) -> Conflict:
    """The error for a write with an outdated resourceVersion."""
    return conflict_error(
        kind, name, "the object has been modified; please apply your changes to the latest version and try again"
    )


def not_found_error(kind: Kind, name: str) -> NotFound:
    """The error for an object that does not exist."""
    return NotFound(f'{kind.resource} "{name}" not found', details=status_details(kind, name))


def forbidden_error(kind: Kind, name: str, why: str, causes: list[Obj] | None = None) -> Forbidden:
    """The error for an operation that is not allowed on this object."""
    details = status_details(kind, name)
    return Forbidden(
        f'{kind.resource} "{name}" is forbidden: {why}', details={**details, "causes": causes} if causes else details
    )
