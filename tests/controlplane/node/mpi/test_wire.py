"""What is read from the connection between mpirun's pod and a worker's: frames in any portions, and nothing that is none."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.mpi import wire

KINDS = [wire.COMMAND, wire.INPUT, wire.INPUT_END, wire.SIGNAL, wire.OUTPUT, wire.ERRORS, wire.WINDOW, wire.EXIT]
FRAMES = st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=64)), max_size=8)


@given(FRAMES, st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_property_frames_are_read_in_any_portions(frames: list[tuple[bytes, bytes]], portions: list[int]) -> None:
    sent = b"".join(wire.frame(kind, payload) for kind, payload in frames)
    reader, read, number = wire.FrameReader(), [], 0
    while sent:
        size = portions[number % len(portions)]
        read += reader.feed(sent[:size])
        sent, number = sent[size:], number + 1
    assert read == frames


@given(st.binary(max_size=64))
def test_property_anything_else_is_refused_or_waited_for(received: bytes) -> None:
    try:
        frames = list(wire.FrameReader().feed(received))
    except wire.WireError:
        return
    assert b"".join(wire.frame(*frame) for frame in frames) == received[: sum(len(payload) + 5 for _, payload in frames)]


def test_a_frame_that_is_too_long_is_refused_at_its_header() -> None:
    header = wire.frame(wire.INPUT)[:1] + (wire.MAX_FRAME + 1).to_bytes(4)
    with pytest.raises(wire.WireError, match="something else than frames"):
        list(wire.FrameReader().feed(header))


@given(st.binary(max_size=6))
def test_property_numbers_are_small_and_decimal(payload: bytes) -> None:
    try:
        number = wire.parse_number(payload, 255)
    except wire.WireError:
        assert not payload.isdigit() or len(payload) > 3 or int(payload) > 255
    else:
        assert number == int(payload)


@pytest.mark.parametrize("same", [True, False])
def test_both_ends_need_the_same_key(tmp_path: Path, same: bool) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("key" if same else f"key {name}")
    client, agent = (wire.read_key(str(tmp_path / name)) for name in ("a", "b"))
    outcome: list[str] = []

    def accept(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            try:
                wire.accept_peer(connection, agent)
                outcome.append("accepted")
            except wire.WireError:
                outcome.append("refused")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        with socket.create_connection(listener.getsockname()) as connection:
            if same:
                wire.greet_agent(connection, client)
            else:
                with pytest.raises(wire.WireError, match="another key"):
                    wire.greet_agent(connection, client)
        thread.join()
    assert outcome == ["accepted" if same else "refused"]
