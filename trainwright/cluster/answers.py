"""Reads answers of servers within limits of size and time, and says why a server cannot be reached.

The clients of Kubernetes and of Kubeflow Pipelines send their requests by urllib3, 1 or 2, and would read answers whole: an endless
one, or a bomb of zeros, would take the memory of the client. Texts of HTTP libraries may quote headers and addresses with passwords,
so errors here have our own words; their class decides whether a retry can succeed.
"""

from __future__ import annotations

import functools
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

from trainwright.api.errors import ApiError, ServiceUnavailable
from trainwright.text.foreign_texts import one_line

OBJECT_BYTES = 16 * 1024 * 1024
"""Of an answer with one object, and of an event of a watch: API servers store at most 1.5 MB of one."""
PAGE_BYTES = 256 * 1024 * 1024
"""Of an answer with a page of a list."""
ANSWER_SECONDS = 300
"""For an answer to end, once it has begun; API servers give requests other than watches 60 seconds."""
_REFUSAL_BYTES = 64 * 1024
_PIECE = 65536
_CAUSES = 10
"""Of an exception: a chain of them may be a circle, or made to be long."""
_TEMPORARY_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_OF_THE_BODY = ("content-encoding", "content-length", "transfer-encoding")


class AnswerTooLarge(ApiError):
    """A server sent more than any answer of its kind has. Asking again does not help."""

    code = 413
    reason = "ResponseTooLarge"

    def __init__(self, host: str, most: int):
        super().__init__(
            f"{host} sent more than {most // 1024**2} MiB, and no object of this API has that many; check the address"
        )


class TooManyPages(ServiceUnavailable):
    """A list does not end. Asking again for all of its pages does not help."""

    retryable = False


class AnswerEncoded(ApiError):
    """A server compressed its answer, although it was asked not to: a few bytes may be gigabytes."""

    code = 406
    reason = "NotAcceptable"

    def __init__(self, encoding: str):
        super().__init__(f"the server sent an answer encoded as {one_line(encoding)[:40]}, which was not asked for")


def read_answer(response: Any, host: str, most: int) -> bytes:
    """Return the body of a response of urllib3. Raises AnswerTooLarge beyond `most` bytes, ServiceUnavailable if it does not end."""
    body = bytearray()  # a list of pieces would take fifty bytes for each, of which a server chooses the number
    for piece in in_time(response, host):
        body += piece
        if len(body) > most:
            response.close()
            raise AnswerTooLarge(host, most)
    response.release_conn()
    return bytes(body)


def in_time(response: Any, host: str) -> Iterator[bytes]:
    """Yield the body as it arrives. Raises ServiceUnavailable if it does not end in time, and what `pieces_of` raises."""
    deadline = time.monotonic() + ANSWER_SECONDS
    for piece in pieces_of(response, host):
        if time.monotonic() > deadline:
            response.close()
            raise ServiceUnavailable(f"{host} did not end its answer within {ANSWER_SECONDS} seconds")
        yield piece


def lines_of(pieces: Iterator[bytes], host: str, most: int) -> Iterator[bytes]:
    """Yield the lines of a stream that are not empty, without their ends. Raises AnswerTooLarge for one of more than `most` bytes."""
    pending = bytearray()
    for piece in pieces:
        *complete, rest = piece.split(b"\n")
        for line in complete:
            if whole := bytes(pending) + line:
                yield whole
            pending.clear()
        pending += rest
        if len(pending) > most:
            raise AnswerTooLarge(host, most)


def pieces_of(response: Any, host: str = "") -> Iterator[bytes]:
    """Yield the body as it arrives. Raises ServiceUnavailable if the connection is lost, AnswerEncoded if it is compressed."""
    from urllib3.exceptions import HTTPError

    if (encoding := response.headers.get("Content-Encoding", "identity").strip().lower()) not in ("", "identity"):
        response.close()
        raise AnswerEncoded(encoding)
    try:
        if hasattr(response, "read1"):
            while piece := response.read1(_PIECE):  # without a size, Python reserves the length that the server names
                yield piece
            if missing := response.length_remaining:  # read1 does not report it
                raise ServiceUnavailable(f"the connection was lost: {missing} bytes are missing")
        else:  # urllib3 1
            yield from response.stream(_PIECE)
    except (HTTPError, OSError) as error:
        raise lost_connection(host, error) from None


def shorten_refusals(pool_manager: Any) -> None:
    """Make a pool manager of urllib3 read the beginning of answers other than success: clients read these whole, for their errors."""
    pool_manager.request = functools.partial(_with_short_refusals, pool_manager.request)


def _with_short_refusals(request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    import urllib3

    response = request(*arguments, **options)
    if 200 <= response.status < 300:
        return response
    body = b""
    try:
        for piece in in_time(response, ""):
            body += piece
            if len(body) >= _REFUSAL_BYTES:  # an error needs no more, and the rest may have no end
                break
    except AnswerEncoded:  # the status says enough; an answer that was lost on its way is a lost connection, which is retried
        pass
    finally:
        response.close()
    headers = urllib3.HTTPHeaderDict(each for each in response.headers.items() if each[0].lower() not in _OF_THE_BODY)
    return urllib3.HTTPResponse(io.BytesIO(body[:_REFUSAL_BYTES]), headers, response.status, reason=response.reason)


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
    while isinstance(inner, BaseException) and id(inner) not in seen and len(seen) < _CAUSES:
        seen.add(id(inner))
        yield inner
        inner = next(
            (
                value
                for value in (getattr(inner, "reason", None), inner.__cause__, inner.__context__, *inner.args)
                if isinstance(value, BaseException)
            ),
            None,
        )
