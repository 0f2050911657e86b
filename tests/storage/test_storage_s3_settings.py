"""Where the store is and who we are comes from the environment; what would send keys in the clear is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.storage.errors import NoAccess, StorageError
from trainwright.storage.objects.s3_settings import S3Settings
from trainwright.storage.uri import StorageUri

AWS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
KUBEFLOW = {"ACCESS_KEY_ID": "k-id", "SECRET_ACCESS_KEY": "k-secret", "ENDPOINT": "https://k.example", "REGION": "eu-west-1"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, S3Settings()),
        (AWS, S3Settings(access_key_id="id", secret_access_key="secret")),
        (
            {**AWS, "AWS_SESSION_TOKEN": "t", "AWS_DEFAULT_REGION": "a", "AWS_CA_BUNDLE": "/ca.pem"},
            S3Settings(access_key_id="id", secret_access_key="secret", session_token="t", region="a", ca_bundle="/ca.pem"),
        ),
        (
            {"AWS_ENDPOINT_URL": "https://all.example", "AWS_ENDPOINT_URL_S3": "https://s3.example/", "AWS_REGION": "b"},
            S3Settings(endpoint="https://s3.example", region="b"),
        ),
        (
            {**KUBEFLOW, "AWS_SESSION_TOKEN": "of other keys"},
            S3Settings("https://k.example", "eu-west-1", "k-id", "k-secret"),
        ),
        ({**KUBEFLOW, **AWS}, S3Settings(region="eu-west-1", access_key_id="id", secret_access_key="secret")),
        ({"AWS_ENDPOINT_URL": "http://localhost:1"}, S3Settings(endpoint="http://localhost:1")),
        ({"AWS_ENDPOINT_URL": "http://127.1.2.3:1"}, S3Settings(endpoint="http://127.1.2.3:1")),
        ({"AWS_ENDPOINT_URL": "http://[::1]:1"}, S3Settings(endpoint="http://[::1]:1")),
        ({"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ALLOW_HTTP": "true"}, S3Settings(endpoint="http://minio:9000")),
        ({"AWS_SKIP_SIGNATURE": "true"}, S3Settings(anonymous=True)),
    ],
)
def test_the_environment_is_read(environ: dict[str, str], expected: S3Settings) -> None:
    assert S3Settings.from_environment(environ) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"AWS_ENDPOINT_URL": "http://minio:9000"},
            "http://minio:9000 is not encrypted; use https://, or set AWS_ALLOW_HTTP=true",
        ),
        ({"AWS_ENDPOINT_URL": "http://localhost.evil.example"}, "is not encrypted"),
        ({"AWS_ENDPOINT_URL": "minio:9000"}, "is not a valid URL"),
        ({"AWS_ENDPOINT_URL": "https://user:hidden@minio"}, "is not a valid URL"),
        ({"AWS_ENDPOINT_URL": "ftp://minio"}, "is not a valid URL"),
        ({"AWS_ACCESS_KEY_ID": "hidden"}, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: one is set without the other"),
        ({"ACCESS_KEY_ID": "hidden"}, "one is set without the other"),
    ],
)
def test_invalid_settings_are_refused_without_their_secrets(environ: dict[str, str], message: str) -> None:
    with pytest.raises(StorageError) as caught:
        S3Settings.from_environment(environ)
    assert message in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    shown = repr(S3Settings(access_key_id="id", secret_access_key="hidden", session_token="hidden"))
    assert "hidden" not in shown


@pytest.mark.medium
def test_no_keys_at_all_is_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(NoAccess, match=r"^s3://bucket/x: no credentials; set AWS_ACCESS_KEY_ID"):
        S3Settings().store(StorageUri.parse("s3://bucket/x"))


def test_a_ca_file_that_is_not_there_is_named() -> None:
    pytest.importorskip("obstore")
    with pytest.raises(StorageError, match="AWS_CA_BUNDLE: /none: No such file"):
        S3Settings(access_key_id="a", secret_access_key="b", ca_bundle="/none").store(StorageUri.parse("s3://bucket"))


def test_a_ca_file_that_holds_none_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    (tmp_path / "ca.pem").write_bytes(b"words")
    settings = S3Settings(access_key_id="a", secret_access_key="b", ca_bundle=str(tmp_path / "ca.pem"))
    with pytest.raises(StorageError, match=r"^s3://bucket: .*check AWS_CA_BUNDLE"):
        settings.store(StorageUri.parse("s3://bucket"))


@pytest.mark.medium
def test_nothing_is_imported_before_it_is_needed_and_what_is_missing_is_named() -> None:
    program = """
import sys
sys.modules["obstore"] = None
from trainwright.storage import open_store, StorageError
from trainwright.initializers import initialize_model
assert not {"boto3", "botocore"} & set(sys.modules)
try:
    open_store("s3://bucket/x")
except StorageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "s3:// needs the package obstore: install trainwright[s3]\n"


@pytest.mark.parametrize(
    "keys", [{}, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}], ids=["without-keys", "with-keys"]
)
def test_an_unknown_profile_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    environment = {"AWS_PROFILE": "nope", "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_EC2_METADATA_DISABLED": "true", **keys}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = S3Settings.from_environment()
    for use in (settings.boto3_client, *(() if keys else (lambda: settings.store(StorageUri.parse("s3://bucket/x")),))):
        with pytest.raises(NoAccess, match=r"^.*profile \(nope\) could not be found; check AWS_PROFILE$") as caught:
            use()
        assert "\n" not in str(caught.value)
