"""The variables with credentials and addresses of object stores, which are the supported keys of a store's Secret. Pure.

A runtime patch does not support `envFrom`, so it has to list each variable.
"""

from __future__ import annotations

_S3 = (
    "AWS_ACCESS_KEY_ID",
    "AWS_ALLOW_HTTP",
    "AWS_CA_BUNDLE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SKIP_SIGNATURE",
)
_BY_SCHEME = {
    "s3": _S3,
    "gs": ("GOOGLE_SERVICE_ACCOUNT_KEY", "STORAGE_EMULATOR_HOST"),
    "az": (
        "AZURE_CLIENT_ID",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_TENANT_ID",
    ),
}


def has_store_variables(uri: str) -> bool:
    """Whether a URI is of an object store."""
    return uri.partition("://")[0] in _BY_SCHEME


def store_variables(uri: str) -> tuple[str, ...]:
    """Return the variables for the store of a URI; those of S3 for other schemes."""
    return _BY_SCHEME.get(uri.partition("://")[0], _S3)


def all_store_variables() -> tuple[str, ...]:
    """Return the variables for all object stores."""
    return tuple(name for names in _BY_SCHEME.values() for name in names)
