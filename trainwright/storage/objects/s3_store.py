"""A store in an S3 bucket, or below a prefix of one: what obstore lacks is done with boto3.

boto3 lists all keys unchanged, where obstore omits folders and unusual names, and aborts multipart uploads of killed processes,
whose parts appear in no listing and cost money until they are aborted.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

from trainwright.storage.errors import DamagedUpload, NoAccess, NotFound, NotSupported, StorageError, Transient
from trainwright.storage.objects.connection import ObjectConnection, boto3_errors, obstore_errors
from trainwright.storage.objects.lease import LEASE_SECONDS
from trainwright.storage.objects.object_reader import ListedObject
from trainwright.storage.objects.object_store import ObjectStore
from trainwright.storage.objects.s3_settings import S3Settings
from trainwright.storage.store import StoredFile
from trainwright.storage.uri import StorageUri

_WRONG_CRC = "AAAAAAAAAAA="
"""Of no content that is probed with."""
log = logging.getLogger(__name__)


class S3Store(ObjectStore):
    """Implements `Store`."""

    def __init__(self, uri: StorageUri, settings: S3Settings | None = None, *, lease_seconds: float = LEASE_SECONDS):
        self._settings = settings or S3Settings.from_environment()
        connection = ObjectConnection(f"s3://{uri.bucket}", functools.partial(_open_bucket, uri, settings))
        super().__init__(uri, connection, lease_seconds=lease_seconds)
        self._client = _made_once(self._settings.boto3_client)  # shared by the stores below this one

    def list_objects(self) -> list[ListedObject]:
        """With boto3: obstore omits unusual names of others."""
        return list_objects(self._client(), self.uri, lambda page: self._connection.retry(page, self.uri))

    def inspect(self, key: str) -> StoredFile | None:
        """Return size and checksum; the checksum is empty where the store has none."""
        path, uri = self._path(key), self.uri.join(key)

        def head() -> StoredFile | None:
            try:
                with boto3_errors(uri):
                    found = self._client().head_object(Bucket=uri.bucket, Key=path, ChecksumMode="ENABLED")
            except NotFound:
                return None
            is_whole = found.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
            return StoredFile(found["ContentLength"], crc64nvme=found.get("ChecksumCRC64NVME", "") if is_whole else "")

        return self._connection.retry(head, uri)

    def _abort_incomplete_uploads(self) -> None:
        self._connection.retry(lambda: abort_incomplete_uploads(self._client(), self.uri), self.uri)

    def _checks_uploads(self, key: str) -> bool:
        if not self._settings.endpoint:  # AWS
            return True
        import obstore

        path, uri = self._path(key), self.uri.join(key)

        def send_directly() -> None:
            headers = {"x-amz-checksum-crc64nvme": _WRONG_CRC}
            store = self._settings.store(uri, sends_checksums=False, headers=headers)
            with obstore_errors(uri):
                obstore.put(store, path, b"probe", use_multipart=False)

        def send_signed() -> None:
            with boto3_errors(uri):
                self._client().put_object(Bucket=uri.bucket, Key=path, Body=b"probe", ChecksumCRC64NVME=_WRONG_CRC)

        try:
            return self._is_refused(send_directly, uri)
        except NoAccess:  # it takes no header that is not signed
            return self._is_refused(send_signed, uri)

    def _is_refused(self, send_wrong_checksum: Callable[[], None], uri: StorageUri) -> bool:
        def is_refused() -> bool:
            try:
                send_wrong_checksum()
            except DamagedUpload:  # it has compared: the upload had a wrong checksum
                return True
            except (NoAccess, Transient):  # this says nothing about checksums
                raise
            except StorageError:  # it does not know the header: then it checks nothing
                return False
            return False

        return self._connection.retry(is_refused, uri)


def _open_bucket(uri: StorageUri, settings: S3Settings | None, retry_seconds: float, sends_checksums: bool) -> Any:
    return (settings or S3Settings.from_environment()).store(uri, retry_seconds, sends_checksums=sends_checksums)


def _made_once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return what calls `make` the first time: threads that ask together wait, since a client takes 0.1 s to make, alone."""
    lock, cached = threading.Lock(), functools.cache(make)

    def get() -> Any:
        with lock:
            return cached()

    return get


def list_objects(client: Any, uri: StorageUri, retry: Callable[[Callable[[], Any]], Any]) -> list[ListedObject]:
    """Return all objects below the URI, sorted by name, without folder placeholders. `retry` sends the request of a page.

    Raises StorageError.
    """
    prefix = f"{uri.key}/" if uri.key else ""
    found: list[ListedObject] = []
    position: dict[str, str] = {}

    def page() -> Any:
        with boto3_errors(uri):
            return client.list_objects_v2(Bucket=uri.bucket, Prefix=prefix, **position)

    while True:
        listed = retry(page)
        for entry in listed.get("Contents", []):
            name = entry["Key"].removeprefix(prefix)
            if name and not name.endswith("/"):
                found.append(ListedObject(name, entry["Size"], entry["ETag"]))
        if not listed.get("IsTruncated"):
            return sorted(found, key=lambda each: each.name)
        position = {"ContinuationToken": listed["NextContinuationToken"]}


def abort_incomplete_uploads(client: Any, uri: StorageUri) -> int:
    """Abort all incomplete uploads below a prefix that only the caller writes to. Returns their number.

    Without permission to list uploads they are left to the bucket's lifecycle rules. Raises StorageError.
    """
    location = {"Bucket": uri.bucket, "Prefix": f"{uri.key}/"}
    aborted = 0
    try:
        with boto3_errors(uri):
            for page in client.get_paginator("list_multipart_uploads").paginate(**location):
                for upload in page.get("Uploads") or []:
                    aborted += _abort(client, uri, upload)
    except (NoAccess, NotSupported) as error:  # the lifecycle rules of the bucket abort them
        log.info("incomplete uploads cannot be listed uri=%s error=%s", uri, error)
    return aborted


def _abort(client: Any, uri: StorageUri, upload: dict[str, str]) -> int:
    try:
        with boto3_errors(uri):
            client.abort_multipart_upload(Bucket=uri.bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    except NotFound:  # completed or aborted meanwhile
        return 0
    log.info("incomplete upload aborted uri=s3://%s/%s", uri.bucket, upload["Key"])
    return 1
