"""The connection to one bucket: it retries what an outage breaks, renews credentials that expire, and remembers capabilities.

This is the one place that retries: the clients below it send each request once. Only the parts of a large upload are retried by
obstore, for no longer than the connection waits out an outage, since a file that is sent again begins with its first byte. Errors
of obstore and boto3 become one line with a fix, never a key or a signature.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from trainwright.backoff import Backoff, retry
from trainwright.storage.errors import (
    AlreadyExists,
    DamagedUpload,
    ExpiredCredentials,
    NoAccess,
    NoBucket,
    NotFound,
    NotSupported,
    StorageError,
    Transient,
    Unreachable,
)
from trainwright.storage.store import Capabilities
from trainwright.storage.uri import StorageUri
from trainwright.text.foreign_texts import without_credentials

log = logging.getLogger(__name__)
FIRST_CONTACT_SECONDS = 5.0
"""For a store that has not answered yet: its address may be wrong."""
_STEP_SECONDS = 60.0
"""The same in a step of a run."""
OUTAGE_SECONDS = 600.0
"""For a store that has answered: how long an outage, since the last success, is waited out."""
_REFRESH_SECONDS = 60.0
"""How long renewed credentials are waited for."""
_BACKOFF = Backoff(0.2, 15.0)
Result = TypeVar("Result")
Open = Callable[[float, bool], Any]
"""Opens a store of obstore that retries a request for so many seconds (0: not at all), and sends checksums or not."""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_REFUSED = {
    "InvalidAccessKeyId": "the access key does not exist",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "ExpiredToken": "the session token has expired",
    "InvalidToken": "the session token is wrong",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "AccessDenied": "the credentials lack the permission",
}
_EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_DAMAGED = ("BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody", "RequestTimeout")
"""Answers with status 400 to a request that was damaged or cut off on its way."""
_TRANSIENT = ("408", "416", "429")
"""416 answers to a broken download that was resumed by a length which was wrong."""
_CHECK_CREDENTIALS = {
    "s3": "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and the policies of the bucket",
    "gs": "check GOOGLE_APPLICATION_CREDENTIALS and the roles of the service account",
    "az": "check AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and the roles of the identity",
}
_CHECK_ADDRESS = {"s3": "AWS_ENDPOINT_URL and AWS_REGION", "gs": "its name", "az": "AZURE_STORAGE_ACCOUNT_NAME"}


class _Patience:
    """How many steps of runs are being done in this process, whose threads all wait longer then."""

    steps = 0


@contextmanager
def waiting_as_a_step() -> Iterator[None]:
    """Wait as long for a store that has not answered yet as for such a cluster: a step may come after a long training."""
    _Patience.steps += 1
    try:
        yield
    finally:
        _Patience.steps -= 1


class ObjectConnection:
    """Shared by all stores below one bucket, and by the threads of a transfer. `name` identifies the endpoint and the bucket."""

    def __init__(
        self,
        name: str,
        open_bucket: Open,
        *,
        first_seconds: float | None = None,
        outage_seconds: float | None = None,
    ):
        self.name = name
        self._open = open_bucket
        self._given_first_seconds = first_seconds
        self._outage_seconds = OUTAGE_SECONDS if outage_seconds is None else outage_seconds
        self._lock = threading.Lock()
        self._succeeded_at: float | None = None
        self.sends_checksums = True
        self._reopen()
        self._capabilities: Capabilities | None = None

    @property
    def _first_seconds(self) -> float:
        if self._given_first_seconds is not None:
            return self._given_first_seconds
        return max(_STEP_SECONDS, FIRST_CONTACT_SECONDS) if _Patience.steps else FIRST_CONTACT_SECONDS

    @property
    def bucket(self) -> Any:
        """The store of obstore, which sends each request once: for actions of `retry`."""
        return self._bucket

    @property
    def parts_bucket(self) -> Any:
        """The store of obstore for uploads in parts, each of which it retries."""
        return self._parts_bucket

    def capabilities(self, find_out: Callable[[], Capabilities]) -> Capabilities:
        """Return what the store can do; `find_out` is called once."""
        if self._capabilities is None:
            self._capabilities = find_out()
            log.info("event=store_capabilities store=%s capabilities=%s", self.name, self._capabilities)
        return self._capabilities

    def note_success(self) -> None:
        """The store has answered: from now on an outage is waited out."""
        is_first = self._succeeded_at is None
        self._succeeded_at = time.monotonic()
        if is_first:
            self._reopen()

    def send_no_checksums(self) -> None:
        """For a store that refuses uploads with a checksum."""
        self.sends_checksums = False
        self._reopen()

    def retry(self, action: Callable[[], Result], uri: StorageUri) -> Result:
        """Return the result of `action`, which is repeated after a Transient error and after credentials have expired.

        It must be safe to repeat, also if it had succeeded and only its answer was lost.
        """
        started = time.monotonic()

        def pause_after(error: StorageError, failures: int) -> float:
            pause, since = _BACKOFF.pause(failures), max(started, self._succeeded_at or 0.0)
            if time.monotonic() + pause > since + self._budget(error):
                raise error
            log.warning("event=transfer_retry uri=%s pause=%.1f reason=%r", uri, pause, str(error))
            if isinstance(error, ExpiredCredentials):
                self._reopen()
            return pause

        result = retry(action, (Transient, ExpiredCredentials), pause_after)
        self.note_success()
        return result

    def _budget(self, error: Exception) -> float:
        if isinstance(error, ExpiredCredentials):
            return min(_REFRESH_SECONDS, self._outage_seconds)
        return self._first_seconds if self._succeeded_at is None else self._outage_seconds

    def _reopen(self) -> None:
        """Open the bucket with the present settings, and with new credentials if a profile or a token file has them."""
        with self._lock:
            seconds = self._first_seconds if self._succeeded_at is None else self._outage_seconds
            self._bucket: Any = self._open(0.0, self.sends_checksums)
            self._parts_bucket: Any = self._open(seconds, self.sends_checksums)


@contextlib.contextmanager
def obstore_errors(uri: StorageUri) -> Iterator[None]:
    """Convert the errors of one obstore call for `uri`. They are not chained: a log of the chain would quote requests."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raise AlreadyExists(f"{uri} exists, or has changed since it was read") from None
    except (FileNotFoundError, NotImplementedError, ValueError, exceptions.BaseError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of a local file
            raise
        text = str(error)
        code, status = _CODE.search(text), _STATUS.search(text)
        missing = isinstance(error, FileNotFoundError)
        raise _translated(uri, code[1] if code else "", status[1] if status else "404" if missing else "", text) from None


@contextlib.contextmanager
def boto3_errors(uri: StorageUri) -> Iterator[None]:
    """Convert the errors of boto3 calls for `uri`."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        answer = error.response
        status = str(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        raise _translated(uri, str(answer.get("Error", {}).get("Code", "")), status, "") from None
    except NoCredentialsError:
        raise NoAccess(f"{uri}: no credentials; {_CHECK_CREDENTIALS[uri.scheme]}") from None
    except BotoCoreError as error:
        raise _translated(uri, "", "", f"HTTP error: {error}") from None


def _translated(uri: StorageUri, code: str, status: str, text: str) -> StorageError:
    if code in ("NoSuchBucket", "ContainerNotFound"):
        return NoBucket(f"{uri}: the bucket {uri.bucket!r} does not exist; create it, or check {_CHECK_ADDRESS[uri.scheme]}")
    if code in _REFUSED or status in ("401", "403"):
        refused = ExpiredCredentials if code in _EXPIRED else NoAccess
        return refused(
            f"{uri}: access denied: {_REFUSED.get(code, code or f'status {status}')}; {_CHECK_CREDENTIALS[uri.scheme]}"
        )
    if code == "NotImplemented" or status == "501":
        return NotSupported(f"{uri}: the store does not support this request")
    if code == "ConditionalRequestConflict":
        return AlreadyExists(f"{uri} is being written by another client")
    if status == "404":
        return NotFound(f"{uri} does not exist")
    if status:
        kind: type[StorageError] = Transient if status in _TRANSIENT or status.startswith("5") else StorageError
        kind = DamagedUpload if code in _DAMAGED else kind
        return kind(f"{uri}: the store answers {status}{f' ({code})' if code and code != status else ''}; try again")
    if "certificate" in text.lower():
        return Unreachable(f"{uri}: the store's certificate is not trusted; set AWS_CA_BUNDLE to the CA file")
    if "HTTP error" in text:
        return Unreachable(f"{uri}: the store cannot be reached; check AWS_ENDPOINT_URL and the network, then try again")
    return StorageError(f"{uri}: {without_credentials(text) if text else 'the request failed'}")
