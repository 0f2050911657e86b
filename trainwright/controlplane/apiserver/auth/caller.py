"""Who sends a request, and what the answer to it may need: the authorizer, and the authenticator for a review of a token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainwright.api.kinds import Kind
from trainwright.api.objects import Obj
from trainwright.controlplane.apiserver.auth.authentication import Authenticator
from trainwright.controlplane.apiserver.auth.authorizer import Access, Authorizer, forbidden_error
from trainwright.controlplane.apiserver.auth.users import User


@dataclass(frozen=True)
class Caller:
    """A `Requester`, for the admission of writes."""

    user: User
    authorizer: Authorizer
    authenticator: Authenticator

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def groups(self) -> tuple[str, ...]:
        return self.user.groups

    @property
    def is_administrator(self) -> bool:
        return self.user.is_administrator

    def may(self, verb: str, kind: Kind, namespace: str, name: str) -> bool:
        """Whether the user has a verb on an object."""
        return self.authorizer.allows(self.user, Access(verb, kind.group, kind.plural, name, namespace))

    def require(self, verb: str, kind: Kind, namespace: str, name: str) -> None:
        """Raises Forbidden if the user does not have a verb on an object."""
        self.require_access(Access(verb, kind.group, kind.plural, name, namespace))

    def require_access(self, access: Access) -> None:
        """Raises Forbidden if the user does not have an access."""
        if not self.authorizer.allows(self.user, access):
            raise forbidden_error(access, self.user.name)

    def rules(self, namespace: str) -> Iterable[Obj]:
        """The RBAC rules of the user in a namespace; those for the whole cluster if it is empty."""
        return self.authorizer.rules(self.user, namespace)
