"""Converts errors of object stores, as obstore and boto3 raise them: one line with a fix, never a key or a signature."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
from trainwright.text.foreign_texts import without_credentials

if TYPE_CHECKING:
    from trainwright.storage.uri import StorageUri

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
