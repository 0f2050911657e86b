"""Azurite, the emulator of Azure Blob Storage, on loopback. It is installed by npm into the folder of clients where npm is there."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.ports import free_port

CONTAINER = "trainwright"
VERSION = "3.37.0"
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Known to everybody: Azurite's own."""
_FOLDER = Path(os.environ.get("TRAINWRIGHT_CLIENTS", Path(__file__).parents[2] / ".clients")) / f"azurite-{VERSION}"


@dataclass(frozen=True)
class AzureServer:
    """`environment` names it for Azure's tools, and for us."""

    environment: dict[str, str]


@contextmanager
def running_azurite() -> Iterator[AzureServer]:
    """The server with an empty container, until the block ends. Skips the test where it cannot be installed."""
    program = _program()
    with tempfile.TemporaryDirectory(prefix="azurite-", ignore_cleanup_errors=True) as folder:
        port = free_port()
        command = [program, "--location", folder, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck"]
        with open(f"{folder}/log", "wb") as log:
            process = subprocess.Popen([*command, "--silent"], stdout=log, stderr=log, start_new_session=True)
        try:
            endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
            _wait(port, process, Path(folder, "log"))
            _create_container(endpoint)
            yield AzureServer(
                {
                    "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
                    "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
                    "AZURE_STORAGE_ENDPOINT": endpoint,
                }
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def _program() -> str:
    if found := shutil.which("azurite-blob"):
        return found
    installed = _FOLDER / "node_modules" / ".bin" / "azurite-blob"
    if not installed.exists():
        if shutil.which("npm") is None:
            pytest.skip("needs Azurite: install npm, or azurite on the PATH")
        done = subprocess.run(
            ["npm", "install", "--silent", "--no-fund", "--prefix", str(_FOLDER), f"azurite@{VERSION}"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if not installed.exists():
            pytest.skip(f"needs Azurite, which npm could not install: {done.stderr[-200:]}")
    return str(installed)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"Azurite did not start: {error}\n{log.read_text()[-2000:]}") from error
            time.sleep(0.1)


def _create_container(endpoint: str) -> None:
    """By a signed request of our own: obstore creates no containers."""
    import base64
    import hashlib
    import hmac
    import urllib.request
    from datetime import UTC, datetime

    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n"
    resource = f"/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}\nrestype:container"
    text = f"PUT\n\n\n\n\n\n\n\n\n\n\n\n{headers}{resource}"
    signature = base64.b64encode(hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(f"{endpoint}/{CONTAINER}?restype=container", method="PUT", data=b"")
    for name, value in {
        "x-ms-date": date,
        "x-ms-version": "2021-08-06",
        "Authorization": f"SharedKey {_ACCOUNT}:{signature}",
    }.items():
        request.add_header(name, value)
    request.remove_header("Content-type")
    request.add_header("Content-Type", "")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 201
