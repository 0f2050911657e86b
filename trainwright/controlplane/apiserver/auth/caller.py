"""Who sends a request, and what the answer to it may need: the authorizer, and the tokens for a review of one."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.controlplane.apiserver.auth.authorizer import Authorizer
from trainwright.controlplane.apiserver.auth.tokens import Tokens
from trainwright.controlplane.apiserver.auth.users import User


@dataclass(frozen=True)
class Caller:
    user: User
    authorizer: Authorizer
    tokens: Tokens
