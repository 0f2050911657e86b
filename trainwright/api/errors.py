"""The errors of a Kubernetes API, one class for each reason, with the Status body that carries them over HTTP.

Clients raise them, and the embedded API server returns them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainwright.api.objects import Obj


@dataclass(frozen=True)
class Problem:
    """One problem of an object: field, message, and the reason of a Status cause."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"
    at: str = ""
    """The path in the object, if `field` is not one: some rules name fields that do not exist."""

    hint: str = ""
    """A suggestion for people, which servers do not give."""

    @property
    def where(self) -> str:
        return self.at or self.field

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ApiError(Exception):
    """An error response of the API; `reason` and `code` are those of its Status."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, *, details: Obj | None = None, code: int | None = None, retry_after: float | None = None):
        super().__init__(message)
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after
        if code is not None:
            self.code = code

    @property
    def retryable(self) -> bool:
        """Whether a retry of the same request can succeed."""
        return self.code in (Expired.code, TooManyRequests.code) or self.code >= 500

    def status(self) -> Obj:
        """The Status object that a Kubernetes API server sends for this error."""
        status: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if not self.reason:  # a webhook's decoding errors have none
            del status["reason"]
        if self.details:
            status["details"] = self.details
        return status


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class Expired(ApiError):
    code, reason = 410, "Expired"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """The object is invalid; `problems` contains all problems, not only the first."""

    code, reason = 422, "Invalid"
    tells_causes = True
    """Whether the Status lists the problems as causes."""

    def __init__(
        self, message: str, *, problems: list[Problem] | None = None, details: Obj | None = None, **more: float | int | None
    ):
        self.problems = problems or []
        if self.tells_causes and self.problems and "causes" not in (details or {}):
            causes = [{"reason": p.reason, "message": p.message, "field": p.field} for p in self.problems]
            details = {**(details or {}), "causes": causes}
        super().__init__(message, details=details, **more)  # type: ignore[arg-type]

    @classmethod
    def of(cls, kind: str, name: str, problems: list[Problem], group: str = "") -> Invalid:
        """One error with all problems of an object, with the message of the API server."""
        told = list(dict.fromkeys(str(p) for p in problems))
        text = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        qualified = f"{kind}.{group}" if group else kind
        return cls(
            f'{qualified} "{name}" is invalid: {text}', problems=problems, details={"name": name, "kind": kind, "group": group}
        )


class Undecodable(Invalid, BadRequest):
    """The object cannot be decoded: an unknown field, or a value of the wrong type."""

    code, reason = 400, "BadRequest"
    tells_causes = False


class Denied(Invalid, Forbidden):
    """A webhook rejected the object."""

    code, reason = 403, "Forbidden"
    tells_causes = False


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


_BY_REASON: dict[str, type[ApiError]] = {
    error.reason: error
    for error in (
        BadRequest,
        Unauthorized,
        Forbidden,
        NotFound,
        MethodNotAllowed,
        Conflict,
        AlreadyExists,
        Expired,
        UnsupportedMediaType,
        Invalid,
        TooManyRequests,
        ServiceUnavailable,
        Timeout,
    )
}
_BY_CODE = {error.code: error for error in reversed(_BY_REASON.values())}


_STRICT_DECODING = re.compile(r"strict decoding error: (?P<problems>.+)", re.DOTALL)
_FIELD_OF_DECODING = re.compile(r'(?P<what>unknown|duplicate) field "(?P<field>[^"]+)"')
_REASON_OF_DECODING = {"unknown": "FieldUnknown", "duplicate": "FieldDuplicate"}


def error_from_status(status: Obj, code: int | None = None) -> ApiError:
    """Return the exception for a Status object from a server.

    The reason determines the class; if it is missing or unknown, the HTTP code does.
    """
    code = int(status.get("code") or code or 500)
    known = _BY_REASON.get(str(status.get("reason") or "")) or _BY_CODE.get(code, ApiError)
    message = str(status.get("message") or f"HTTP {code}")
    details = status.get("details") or {}
    retry_after = details.get("retryAfterSeconds")
    if known is Invalid:
        causes = details.get("causes") or []
        about = f"{details.get('kind') or 'object'} {details.get('name') or ''}".strip()
        problems = [
            Problem(
                field := str(c.get("field") or ""),
                str(c.get("message", "")) if field else f"{about}: {c.get('message', '')}",  # a policy names no field
                str(c.get("reason", "FieldValueInvalid")),
            )
            for c in causes
        ]
        return Invalid(message, problems=problems, details=details, code=code)
    if known is BadRequest and (problems := _decoding_problems(message)):
        return Undecodable(message, problems=problems, details=details, code=code)
    return known(message, details=details, code=code, retry_after=retry_after)


def _decoding_problems(message: str) -> list[Problem]:
    """Return the unknown and duplicate fields that a server with strict field validation rejects."""
    strict = _STRICT_DECODING.search(message)
    found = _FIELD_OF_DECODING.finditer(strict["problems"]) if strict else ()
    return [Problem(match["field"], match[0], _REASON_OF_DECODING[match["what"]]) for match in found]
