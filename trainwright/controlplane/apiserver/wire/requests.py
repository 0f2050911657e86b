"""A request as this server reads it: headers by name, looked up many times, decoded once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from starlette import requests

from trainwright.controlplane.apiserver.resources.paths import Target


class Request(requests.Request):
    """Starlette's, with the headers in a dict; of one that came twice the first counts."""

    target: Target | None = None
    """What its path names, once that is known."""

    @cached_property
    def headers(self) -> Mapping[str, str]:  # type: ignore[override]
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self.scope["headers"])}
