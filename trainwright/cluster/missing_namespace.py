"""Says what to do if the namespace of a request does not exist, which an API server reports as an object that was not found."""

from __future__ import annotations

from trainwright.api.errors import ApiError, NotFound
from trainwright.api.kinds import NAMESPACE


class NamespaceNotFound(NotFound):
    """The namespace of the request does not exist."""


def is_missing_namespace(error: BaseException) -> bool:
    """Whether an object could not be created because its namespace does not exist."""
    return isinstance(error, NotFound) and error.details.get("kind") == NAMESPACE.plural


def with_namespace_hint(error: ApiError, method: str) -> ApiError:
    """Return the error of a creation in a missing namespace as NamespaceNotFound, which says what to do; others unchanged."""
    if method.lower() != "post" or not is_missing_namespace(error):
        return error
    name = error.details.get("name") or "NAME"
    hint = f"create it (`kubectl create namespace {name}`), or correct the name that the step, its connection or -n gives"
    return NamespaceNotFound(f"{error.message}: {hint}", details=error.details, code=error.code)
