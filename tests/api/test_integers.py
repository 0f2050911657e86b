"""Integers in text: what Go's strconv reads, and nothing that Python's `int` reads besides."""

import pytest

from trainwright.api.integers import parse_count, parse_int64
from trainwright.api.names import COMPLETION_INDEX
from trainwright.api.patching.json_patch import PatchFailed, apply_json_patch
from trainwright.controlplane.apiserver.streaming.port_forward import BadRequest, parse_ports
from trainwright.jobs.state.pods import index_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        ("9" * 5000, None),
        ("", None),
        ("-", None),
        ("²", None),
        ("٣", None),
        ("1_000", None),
        (" 1", None),
        ("1\n", None),
        ("0x10", None),
        ("1.0", None),
    ],
)
def test_integers(text: str, number: int | None) -> None:
    assert parse_int64(text) == number
    assert parse_count(text) == (None if text[:1] in ("+", "-") else number)


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 30, "\u00b2"])
def test_whoever_reads_a_number_from_a_text_takes_none_that_python_cannot(text: str) -> None:
    with pytest.raises(PatchFailed):
        apply_json_patch([1], [{"op": "remove", "path": f"/{text}"}])
    with pytest.raises(BadRequest, match="as a port"):
        parse_ports([text])
    assert index_of({"metadata": {"labels": {COMPLETION_INDEX: text}}}) == 0
