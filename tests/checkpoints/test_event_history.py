"""Scalars are read from TensorBoard's event files, and nothing else is taken for one; what is cut off or corrupt is left out."""

from __future__ import annotations

import base64
import logging
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from event_files import crc32c, event, field, record, varint, write_events
from hypothesis import given
from hypothesis import strategies as st

from trainwright.checkpoints.training_history import BadEventFile, Scalar, event_history, metric_name, scalars_in

WRITTEN_BY_TORCH = (
    "c-r$|fPjCKJmzw4yZZ5Zz@b}?QoKn;iJ5tNu4SotC00g3dR#gssd>fuMM?RIMJam4rMbC@MU{HxMVTe3MS7_qRq<(=IjQjwky%Gp%us-utNC_i04D>3!"
    "vXH7YmNepTEbj{TwFf+#l`w1AS*;g*8R8tQny>u0IGiK*9-B;>Xo?^xj4Y;%Mx>(I5-%!Sb(w)Uff)qT<pcki8+Zy#Wzp)XedJUGgiO(2Gq~M%>&ZEh6%"
    "$$28IRpZc?H8hENT2o10&vXduSMgAa8ZY@r4ucz%2XG63dc11>!-!MyyERQ;0FijsI}U^($~unVyWF>x?Dv1X*^<m7vCaItZ*fRuboxH=yIbNp`A"
)
"""By SummaryWriter of torch 2.13 with tensorboard 2.20: a loss in each of the two ways, for steps 1 and 300, and a text."""


def test_file_of_a_real_writer_is_read() -> None:
    content = zlib.decompress(base64.b85decode(WRITTEN_BY_TORCH))
    found = [(each.tag, each.step, each.wall_time - 1.5e9, round(each.value, 4)) for each in scalars_in(content)]
    assert found == [
        ("Loss/train", 1, 1, 1.9975),
        ("Loss/val", 1, 1, 3),
        ("Loss/train", 300, 300, 1.25),
        ("Loss/val", 300, 300, 3),
    ]


def test_checksum_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720


Point = tuple[str, int, float, float]
FLOATS = st.floats(width=32, allow_nan=False)
POINTS = st.lists(st.tuples(st.text(min_size=1, max_size=20), st.integers(-(2**63), 2**63 - 1), FLOATS, FLOATS), max_size=5)


@pytest.mark.medium
@given(POINTS, st.booleans(), st.integers(0, 400))
def test_property_scalars_come_back_and_a_cut_loses_only_the_end(points: list[Point], as_tensor: bool, cut: int) -> None:
    records = [record(event(*point, as_tensor=as_tensor)) for point in points]
    whole = [Scalar(tag, step, wall_time, value) for tag, step, value, wall_time in points]
    content = b"".join(records)
    assert list(scalars_in(content)) == whole
    kept = content[: max(len(content) - cut, 0)]
    complete = sum(len(b"".join(records[: number + 1])) <= len(kept) for number in range(len(records)))
    assert list(scalars_in(kept)) == whole[:complete]


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_property_changed_byte_is_an_error_or_an_end_and_never_another_value(at: int, change: int) -> None:
    content = bytearray(b"".join(record(event("loss", step, 1.5)) for step in range(3)))
    content[at % len(content)] ^= change
    found = []
    with suppress(BadEventFile):
        for scalar in scalars_in(bytes(content)):
            found.append(scalar)
    assert found == [Scalar("loss", step, 0.0, 1.5) for step in range(len(found))]


@given(st.binary(max_size=200))
def test_property_any_message_is_read_or_refused(data: bytes) -> None:
    with suppress(BadEventFile):
        list(scalars_in(record(data)))


@pytest.mark.parametrize(
    "value",
    [
        field(1, b"image") + field(4, b"\x08\x01"),
        field(1, b"counts") + field(8, b"\x08\x01" + field(2, field(2, b"\x08\x01")) + field(4, struct.pack("<f", 1))),
        field(1, b"pr_curve") + b"\x15" + struct.pack("<f", 1) + field(9, field(1, field(1, b"pr_curves"))),
        field(1, b"text") + field(8, b"\x08\x07" + field(8, b"loss=1")),
        b"\x15" + struct.pack("<f", 1),
    ],
    ids=["image", "vector", "other plugin", "string", "no tag"],
)
def test_images_and_texts_have_no_scalars(value: bytes) -> None:
    assert list(scalars_in(record(b"\x10" + varint(1) + field(5, field(1, value))))) == []


def test_large_record_is_passed_over_unread() -> None:
    image = field(5, field(1, field(1, b"image") + field(4, b"x" * 100_000)))
    assert [each.step for each in scalars_in(record(image) + record(event("loss", 7, 1)))] == [7]


def test_restart_repeats_steps_and_the_later_value_counts(tmp_path: Path) -> None:
    write_events(
        tmp_path / "runs" / "a", "1.host", [("train/loss", 1, 4, 10), ("train/loss", 2, 3, 20), ("train/loss", 3, 9, 30)]
    )
    write_events(
        tmp_path / "runs" / "b", "0.host", [("train/loss", 3, 2, 50), ("eval/loss", 3, 2.5, 51), ("train/lr", 3, 0.5, 50)]
    )
    assert event_history(tmp_path) == [
        {"step": 1, "loss": 4.0},
        {"step": 2, "loss": 3.0},
        {"step": 3, "loss": 2.0, "eval_loss": 2.5, "lr": 0.5},
    ]


def test_corrupt_file_is_read_up_to_there_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_events(tmp_path, "1", [("loss", 1, 4, 10), ("loss", 2, 3, 20)])
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert event_history(tmp_path) == [{"step": 1, "loss": 4.0}]
    assert "scalars=1" in caplog.text
    assert "checksum" in caplog.text


def test_folder_without_event_files_has_no_history(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"events")
    assert event_history(tmp_path) == event_history(tmp_path / "missing") == []


@pytest.mark.parametrize(
    ("tag", "folders", "name"),
    [
        ("loss", (), "loss"),
        ("train/loss", (), "loss"),
        ("train_loss", (), "loss"),
        ("Loss/train", (), "loss"),
        ("Loss/val", (), "eval_loss"),
        ("val_loss", (), "eval_loss"),
        ("eval/accuracy", (), "eval_accuracy"),
        ("epoch_loss", ("logs", "train"), "loss"),
        ("epoch_loss", ("logs", "validation"), "eval_loss"),
        ("batch_loss", ("logs", "train"), "batch_loss"),
        ("train_loss_step", (), "loss_step"),
        ("regularization/loss", (), "regularization/loss"),
        ("loss/aux", (), "loss/aux"),
    ],
)
def test_tags_have_the_names_of_transformers(tag: str, folders: tuple[str, ...], name: str) -> None:
    assert metric_name(tag, folders) == name
