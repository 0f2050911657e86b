"""A Starlette request with headers decoded once, because they are looked up many times."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from starlette import requests

from trainwright.controlplane.apiserver.resources.paths import Target
from trainwright.controlplane.apiserver.wire.requester import Requester


class Request(requests.Request):
    """A request with its headers in a dict; the first of repeated headers wins."""

    target: Target | None = None
    """The resource that its path names, once resolved."""
    sender: Requester | None = None
    """Who sends it, once authenticated."""

    @cached_property
    def headers(self) -> Mapping[str, str]:  # type: ignore[override]
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self.scope["headers"])}
