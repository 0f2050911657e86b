"""What a client may ask of a list or a watch, parsed from the parameters of its URL.

Mistakes get the words of kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.api.errors import BadRequest, Invalid, Problem, Timeout
from trainwright.controlplane.apiserver.wire.api_errors import Unspecified

_MATCH = "resourceVersionMatch"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_LONGEST_NUMBER = 100
"""Digits that are looked at: leading zeros are fine, but a number with thousands of digits takes long to read."""
_VERSION_PREFIX = 'resourceVersion: Invalid value: "{}": '


@dataclass(frozen=True)
class ListOptions:
    """The parameters of a list or watch. An empty `resource_version` means: whatever is current."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    token: str = ""
    resource_version: str = ""
    match: str = ""
    watch: bool = False
    timeout_seconds: int | None = None
    bookmarks: bool = False
    send_initial_events: bool = False

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> ListOptions:
        """Raises BadRequest for what cannot be read, Invalid for what does not go together."""
        initial = query.get("sendInitialEvents")
        options = cls(
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            limit=whole(query.get("limit")) or 0,
            token=query.get("continue", ""),
            resource_version=query.get("resourceVersion", ""),
            match=query.get(_MATCH, ""),
            watch=flag(query.get("watch")),
            timeout_seconds=whole(query.get("timeoutSeconds")),
            bookmarks=flag(query.get("allowWatchBookmarks")),
            send_initial_events=flag(initial),
        )
        problems = _watch_problems(options, initial) if options.watch else _list_problems(options, initial)
        if problems:
            raise Invalid.of("ListOptions", "", problems, "meta.k8s.io")
        if options.token and options.resource_version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        return options

    def since(self) -> int | None:
        """The revision to watch from; None for: from now, with what there is. Raises ApiError for text that is no version."""
        if self.resource_version in ("", "0") or self.send_initial_events:
            return None
        return version_number(self.resource_version)


def flag(text: str | None) -> bool:
    """A boolean parameter: there and neither `false` nor `0`, as the API server reads it (`watch=maybe` is true)."""
    return text is not None and text.lower() not in ("false", "0")


def whole(text: str | None) -> int | None:
    """A number parameter. Raises BadRequest."""
    if not text:
        return None
    if not _WHOLE.fullmatch(text):
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > _LONGEST_NUMBER or not -(2**63) <= int(text) < 2**63:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def version_number(text: str, prefix: str = _VERSION_PREFIX) -> int:
    """A resourceVersion as a number. Raises Unspecified, a 500, which is what kube-apiserver answers."""
    syntax = text.isascii() and text.isdigit()
    if syntax and len(text) <= _LONGEST_NUMBER and int(text) < 2**64:
        return int(text)
    why = "value out of range" if syntax else "invalid syntax"
    raise Unspecified(f'{prefix.format(text)}strconv.ParseUint: parsing "{text}": {why}')


def too_large(wanted: int, current: int) -> Timeout:
    """The answer to a read at a version that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Timeout(
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={"causes": [cause], "retryAfterSeconds": 1},
        retry_after=1,
    )


def _forbidden(field: str, why: str) -> Problem:
    return Problem(field, f"Forbidden: {why}", "FieldValueForbidden")


def _list_problems(options: ListOptions, initial: str | None) -> list[Problem]:
    if initial is not None:
        return [_forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")]
    if not options.match:
        return []
    found = []
    if not options.resource_version:
        found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided"))
    if options.token:
        found.append(_forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided"))
    if options.match not in ("Exact", "NotOlderThan"):
        message = f'Unsupported value: "{options.match}": supported values: "Exact", "NotOlderThan", ""'
        found.append(Problem(_MATCH, message, "FieldValueNotSupported"))
    elif options.match == "Exact" and options.resource_version == "0":
        found.append(_forbidden(_MATCH, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    return found


def _watch_problems(options: ListOptions, initial: str | None) -> list[Problem]:
    if initial is None:
        return (
            [_forbidden(_MATCH, f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided")] if options.match else []
        )
    if options.match == "NotOlderThan":
        return []
    found = [_forbidden(_MATCH, f"sendInitialEvents requires setting {_MATCH} to NotOlderThan")]
    if options.match:
        found.append(
            Problem(_MATCH, f'Unsupported value: "{options.match}": supported values: "NotOlderThan"', "FieldValueNotSupported")
        )
    return found
