"""Endpoint and credentials of an S3 store, from the AWS environment variables or those of Kubeflow's initializers."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from trainwright.storage.errors import NoAccess, StorageError
from trainwright.storage.objects.options import client_options, import_obstore, retry_options
from trainwright.storage.uri import StorageUri, is_loopback
from trainwright.text.foreign_texts import without_credentials

_DEFAULT_REGION = "us-east-1"
_REFRESH_AFTER = timedelta(minutes=5)
"""Age at which credentials from boto3's provider chain are read again."""
_SET_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile with AWS_PROFILE"


@dataclass(frozen=True)
class S3Settings:
    """`endpoint` is empty for AWS. Without keys boto3's provider chain is used (profile, web identity, instance)."""

    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    ca_bundle: str = ""
    anonymous: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> S3Settings:
        """Read the AWS variables first, then those of Kubeflow's initializers. Raises NoAccess, StorageError."""

        def first(*names: str) -> str:
            return next((value for name in names if (value := environ.get(name, "").strip())), "")

        aws_keys = "AWS_ACCESS_KEY_ID" in environ
        kubeflow = "ACCESS_KEY_ID" in environ and not aws_keys  # a key and its secret come from the same names
        prefix = "" if kubeflow else "AWS_"
        access_key_id, secret = first(f"{prefix}ACCESS_KEY_ID"), first(f"{prefix}SECRET_ACCESS_KEY")
        if bool(access_key_id) != bool(secret):
            raise NoAccess(f"{prefix}ACCESS_KEY_ID and {prefix}SECRET_ACCESS_KEY: one is set without the other")
        # ENDPOINT is a common name: together with AWS keys it probably belongs to another program.
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", *(() if aws_keys else ("ENDPOINT",)))
        return cls(
            endpoint=_checked_endpoint(first(*names), first("AWS_ALLOW_HTTP").lower() in ("1", "true", "yes")),
            region=first("AWS_REGION", "AWS_DEFAULT_REGION", "REGION"),
            access_key_id=access_key_id,
            secret_access_key=secret,
            session_token="" if kubeflow else first("AWS_SESSION_TOKEN"),
            ca_bundle=first("AWS_CA_BUNDLE"),
            anonymous=first("AWS_SKIP_SIGNATURE").lower() in ("1", "true", "yes"),
        )

    def boto3_session(self) -> Any:
        """Return a boto3 session with these keys, or with boto3's provider chain. Raises NoAccess for an unknown profile."""
        try:
            import boto3
            import boto3.session
        except ImportError as error:
            raise StorageError("s3:// needs the package boto3: install trainwright[s3]") from error
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        try:
            session = Session()
            loader = _loader(session.get_config_variable("data_path"))
            session.register_component("data_loader", loader)
            made = boto3.session.Session(
                botocore_session=session,
                aws_access_key_id=self.access_key_id or None,
                aws_secret_access_key=self.secret_access_key or None,
                aws_session_token=self.session_token or None,
                region_name=self.region or None,
            )
            loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # boto3 adds its own to them each time
            return made
        except BotoCoreError as error:
            raise NoAccess(f"the AWS configuration cannot be used: {without_credentials(error)}; check AWS_PROFILE") from None

    def store(
        self,
        uri: StorageUri,
        retry_seconds: float = 0.0,
        *,
        sends_checksums: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return an obstore store for the URI's bucket, which retries a request for `retry_seconds` and sends `headers`.

        It does not retry at all for 0 seconds.
        With `sends_checksums` every upload has its CRC64NVME, for the store to check. Raises NoAccess, StorageError.
        """
        library = import_obstore("s3")
        provider, region = None, self.region
        if not self.anonymous:
            provider, region = self._credentials(uri)
        aws = not self.endpoint
        config = {
            "region": region or _DEFAULT_REGION,
            "skip_signature": self.anonymous,
            "disable_bulk_delete": True,  # not every store supports it
            # AWS requires the bucket in the host name, except for names with dots, which its certificate does not cover.
            "virtual_hosted_style_request": aws and "." not in uri.bucket,
            # TLS protects the data already; to sign it too would double the cost of an upload.
            "unsigned_payload": not self.endpoint.startswith("http://") or is_loopback(urlsplit(self.endpoint).hostname or ""),
        }
        if sends_checksums:
            config["checksum_algorithm"] = "CRC64NVME"
        if self.endpoint:
            config["endpoint"] = self.endpoint
        client = client_options(allow_http=self.endpoint.startswith("http://"), ca_bundle=self.ca_bundle, headers=headers)
        try:
            return library.store.S3Store(
                uri.bucket,
                config=config,
                client_options=client,
                retry_config=retry_options(retry_seconds),
                credential_provider=provider,
            )
        except (ValueError, library.exceptions.BaseError) as error:  # a CA file without certificates, an invalid endpoint
            raise StorageError(f"{uri}: {without_credentials(error)}; check AWS_CA_BUNDLE and AWS_ENDPOINT_URL") from None

    def boto3_client(self) -> Any:
        """Return a boto3 S3 client without retries, for operations that obstore lacks. Raises StorageError."""
        session = self.boto3_session()  # first, because its error says what to install
        from botocore import UNSIGNED
        from botocore.config import Config

        config = Config(
            signature_version=UNSIGNED if self.anonymous else "s3v4",
            connect_timeout=10,
            read_timeout=60,
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3={"addressing_style": "path" if self.endpoint else "auto"},
        )
        return session.client(
            "s3",
            endpoint_url=self.endpoint or None,
            region_name=session.region_name or _DEFAULT_REGION,
            verify=self.ca_bundle or None,
            config=config,
        )

    def _credentials(self, uri: StorageUri) -> tuple[Callable[[], dict[str, object]], str]:
        """Return obstore's credential provider, and the region."""
        if self.access_key_id:
            keys = {
                "access_key_id": self.access_key_id,
                "secret_access_key": self.secret_access_key,
                "token": self.session_token or None,
                "expires_at": None,
            }
            return lambda: dict(keys), self.region
        session = self.boto3_session()
        try:
            credentials = session.get_credentials()
        except Exception as error:  # botocore has dozens, for an unknown profile, a missing token file and so on
            # The output of a credential process may be a part of the text.
            reason = type(error).__name__ if "custom-process" in str(error) else without_credentials(error)
            raise NoAccess(f"{uri}: no credentials: {reason}; {_SET_CREDENTIALS}") from None
        if credentials is None:
            raise NoAccess(f"{uri}: no credentials; {_SET_CREDENTIALS}")

        def current() -> dict[str, object]:
            frozen = credentials.get_frozen_credentials()
            return {
                "access_key_id": frozen.access_key,
                "secret_access_key": frozen.secret_key,
                "token": frozen.token,
                "expires_at": datetime.now(UTC) + _REFRESH_AFTER,
            }

        return current, session.region_name or ""


def _checked_endpoint(url: str, allow_http: bool) -> str:
    if not url:
        return ""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"  # the URL may contain a password
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password or parts.query:
        raise StorageError(f"the S3 endpoint {shown} is not a valid URL; expected https://host or https://host:port")
    if parts.scheme == "http" and not allow_http and not is_loopback(parts.hostname):
        raise StorageError(f"the S3 endpoint {shown} is not encrypted; use https://, or set AWS_ALLOW_HTTP=true to allow it")
    return url.rstrip("/")


@functools.cache
def _loader(data_path: str | None) -> Any:
    """Return what loads the descriptions of services, shared by all sessions: each would read 60 ms of JSON for itself."""
    from botocore.loaders import create_loader

    return create_loader(data_path)
