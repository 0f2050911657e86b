"""A download that is killed with SIGKILL resumes: the server sends at most a buffer of each file again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from servers.hub_server import Fault, HubServer
from support.waiting import eventually

from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.hub import fetch_repository
from trainwright.storage.uri import StorageUri

pytestmark = pytest.mark.medium
MIB = 1024 * 1024
CODE = """
import sys
import threading
from pathlib import Path
from trainwright.initializers.fetched import FileFilter
from trainwright.initializers.hub import fetch_repository
from trainwright.storage.uri import StorageUri
said = lambda count: print(count, flush=True)
fetch_repository(StorageUri.parse("hf://org/model"), FileFilter("model"), sys.argv[1], Path(sys.argv[2]), lambda total: said)
"""


def test_a_killed_download_loses_at_most_a_buffer_of_each_file(hub: HubServer, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(20 * MIB)
    files = {"a.safetensors": content, "b.safetensors": content[::-1], "config.json": b"{}"}
    commit = hub.repository("models/org/model").push(files)
    size, target, received = sum(map(len, files.values())), tmp_path / "target", tmp_path / "received"
    goes_on = threading.Event()
    sent = hub.sent

    def hold(_sent: int) -> None:
        if sum(sent.values()) >= 0.5 * size:
            goes_on.wait(60)
            raise BrokenPipeError  # who reads this has been killed: nothing more of it counts as sent

    hub.faults = lambda _path, _count: Fault(during=hold)
    env = {**os.environ, "HF_ENDPOINT": hub.url}
    with open(received, "wb") as output:
        process = subprocess.Popen([sys.executable, "-c", CODE, commit, str(target)], env=env, stdout=output)
    # The server holds all connections; the process has then received what was sent.
    eventually(lambda: sum(sent.values()) >= 0.5 * size, 60)
    eventually(
        lambda: sum(map(int, received.read_text().split())) >= sum(sent[path] for path in list(sent) if "/resolve/" in path), 60
    )
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert all((target / name).read_bytes() == files[name] for name in files if (target / name).exists())
    first = dict(sent)
    sent.clear()
    goes_on.set()
    hub.faults = lambda _path, _count: None
    fetch_repository(StorageUri.parse("hf://org/model"), FileFilter("model"), commit, target, lambda _total: lambda _count: None)
    for name, expected in files.items():
        assert (target / name).read_bytes() == expected
        path = f"/org/model/resolve/{commit}/{name}"
        assert first.get(path, 0) + sent.get(path, 0) - len(expected) <= MIB, name
    assert sorted(path.name for path in target.iterdir()) == sorted(files)
