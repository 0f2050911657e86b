"""Says in our own words why an API server cannot be reached: texts of HTTP libraries may quote headers and addresses with
passwords. Also decides whether a retry can succeed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from trainwright.api.errors import ServiceUnavailable
from trainwright.text.one_line import one_line

_DEPTH = 10
_TEMPORARY_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class CannotConnect(ServiceUnavailable):
    """The connection can never succeed with this configuration: a certificate of another authority, an address that is none."""

    retryable = False


class NoConnection(ServiceUnavailable):
    """There is no connection at present: nothing listens, the host does not answer, or its name cannot be resolved."""


def connection_failure(host: str, error: BaseException) -> ServiceUnavailable:
    """Return the error for a request that got no response, without the text of any foreign exception."""
    reason, is_permanent = _reason(error)
    kind = CannotConnect if is_permanent else NoConnection
    return kind(f"cannot reach the Kubernetes API at {host}: {reason}")


def lost_connection(host: str, error: BaseException) -> ServiceUnavailable:
    """Return the error for a response that ended early."""
    return ServiceUnavailable(f"the connection{f' to {host}' if host else ''} was lost: {_reason(error)[0]}")


def _reason(error: BaseException) -> tuple[str, bool]:
    chain = list(_chain(error))
    for cause in chain:
        if isinstance(cause, ssl.SSLCertVerificationError):
            text = one_line(getattr(cause, "verify_message", "")) or "verification failed"
            return f"the server's certificate is not accepted: {text}", True
        if isinstance(cause, ssl.SSLError):
            text = one_line(getattr(cause, "reason", "")) or type(cause).__name__
            return f"TLS failed: {text}", not isinstance(cause, _TEMPORARY_TLS)
        if isinstance(cause, UnicodeError):
            return "the host name is not valid", True
    for cause in chain:
        if isinstance(cause, socket.gaierror | socket.herror):
            return f"the host name cannot be resolved: {cause.strerror or type(cause).__name__}", False
        if isinstance(cause, TimeoutError):
            return "timed out", False
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror, False
    names = [type(cause).__name__ for cause in chain]
    if any(name.startswith(("Location", "InvalidURL", "ProxySchemeUnknown", "URLSchemeUnknown")) for name in names):
        return f"the address cannot be used ({names[-1]})", True
    if any(name.endswith("TimeoutError") for name in names):
        return "timed out", False
    return names[-1], isinstance(chain[-1], ValueError)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those inside it, of which the last is the first that was raised."""
    seen: set[int] = set()
    inner: object = error
    while isinstance(inner, BaseException) and id(inner) not in seen and len(seen) < _DEPTH:
        seen.add(id(inner))
        yield inner
        inner = next(
            filter(_is_exception, (getattr(inner, "reason", None), inner.__cause__, inner.__context__, *inner.args)), None
        )


def _is_exception(value: object) -> bool:
    return isinstance(value, BaseException)
