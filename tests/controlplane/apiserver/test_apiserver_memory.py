"""What was deleted, refused or sent leaves the memory: caches and histories are bounded by bytes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from trainwright.api.errors import Expired
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.wire.responses import PIECE_BYTES, in_pieces

_MEASURED = """
import contextlib, gc, resource, sys
from trainwright.api.errors import ApiError
from trainwright.api.kinds import CONFIG_MAP, POD, TRAINING_RUNTIME
from trainwright.controlplane.apiserver.storage.store import Store
from trainwright.controlplane.apiserver.verbs.resource_server import ResourceServer
from trainwright.embedded.process_setup import tune_heap
from trainwright.materialize.runtime_template import compile_runtime

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() >> 20

def config_map(number, data):
    return {"metadata": {"name": f"m{number}"}, "data": data}

tune_heap()
server = ResourceServer(Store(sys.argv[1]))
blocks, pins = [], []
before = resident()
for number in range(300):
    text = f"{number}/" * ((1 << 20) // len(f"{number}/"))
    many = {f"k{key}-{number}": "v" * 1000 for key in range(1000)}
"""
_CASES = {
    "one large value": """
    server.create(CONFIG_MAP, "default", config_map(number, {"a": text}))
    server.delete(CONFIG_MAP, "default", f"m{number}")
""",
    "many values": """
    server.create(CONFIG_MAP, "default", config_map(number, many))
    server.delete(CONFIG_MAP, "default", f"m{number}")
""",
    "objects that stay, compressed": """
    server.create(CONFIG_MAP, "default", config_map(number, many))
""",
    "labels that are refused": """
    with contextlib.suppress(ApiError):
        server.create(CONFIG_MAP, "default", {"metadata": {"name": "a", "labels": {"a": text, text: "a"}}})
""",
    "quantities that are refused": """
    with contextlib.suppress(ApiError):
        limits = {"cpu": "9" * (1 << 20) + str(number)}
        spec = {"containers": [{"name": "a", "image": "i", "resources": {"limits": limits}}]}
        server.create(POD, "default", {"metadata": {"name": "a"}, "spec": spec})
""",
    "large runtimes": """
    pod = {"containers": [{"name": "node", "image": "i", "args": [text]}]}
    template = {"spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]}}
    runtime = {"apiVersion": TRAINING_RUNTIME.api_version, "kind": "TrainingRuntime", "metadata": {"name": "a"}}
    compile_runtime({**runtime, "spec": {"template": template}})
""",
    "blocks between others": """
    pins.append(bytearray(700))
    blocks = [*blocks, text] if number < 250 else []
""",
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("case", _CASES)
def test_large_objects_leave_the_memory(case: str, tmp_path: Path) -> None:
    """Of 300 MB the history keeps 16 MB, parsed several times as much."""
    script = f"{_MEASURED}{_CASES[case]}\ngc.collect()\nprint(resident() - before)"
    answer = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state.db")], check=True, capture_output=True, text=True
    )
    assert int(answer.stdout) < 100


@pytest.mark.medium
def test_the_history_counts_what_was_replaced_before_it_began(tmp_path: Path) -> None:
    """After a restart, the first change of each object holds its old state, too."""
    store = Store(tmp_path / "state.db")
    for number in range(16):
        store.put("things", "", f"t{number}", {"metadata": {}, "text": os.urandom(1_400_000).hex()})
    store.close()
    store = Store(tmp_path / "state.db")
    reopened = store.revision
    for number in range(16):
        store.delete("things", "", f"t{number}", last={"metadata": {}})
    with pytest.raises(Expired):
        store.events_since(reopened)
    store.close()


SIZES = st.builds(lambda pieces, more: max(pieces * PIECE_BYTES + more, 0), st.integers(0, 4), st.integers(-2, 2))


@given(SIZES, st.booleans())
def test_property_pieces_are_the_body(size: int, more: bool) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    body = bytes(size)
    asyncio.run(in_pieces(send)({"type": "http.response.body", "body": body, "more_body": more}))
    assert b"".join(message["body"] for message in sent) == body
    assert [message["more_body"] for message in sent] == [True] * (len(sent) - 1) + [more]
    assert all(len(message["body"]) <= PIECE_BYTES for message in sent)
