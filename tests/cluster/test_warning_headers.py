"""`Warning` headers, as API servers and what is between them and the client send them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.protocol import parse_warnings


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([], []),
        (['299 - "unknown field \\"spec.trainer.numNode\\""'], ['unknown field "spec.trainer.numNode"']),
        (['299 - "first"', '299 - "second"'], ["first", "second"]),
        (['299 - "first, with a comma", 299 proxy "second"'], ["first, with a comma", "second"]),
        (['299 - "dated" "Wed, 21 Oct 2015 07:28:00 GMT"'], ["dated"]),
        (['299 - "a \\\\ b"'], ["a \\ b"]),
        (['299 - "two\\nlines\x1b[0m and\t spaces"'], ["twonlines [0m and spaces"]),
        (['110 - "Response is stale"'], []),
        (['299 - ""'], []),
        (["nonsense", "299", "299 -", '299 - "open'], []),
        (['299 - "gr\xc3\xbc\xc3\x9fe"'], ["grüße"]),
        (['299 - "gr\xfc\xdfe"'], ["grüße"]),
    ],
)
def test_texts_of_headers(values: list[str], texts: list[str]) -> None:
    assert parse_warnings(values) == texts


@pytest.mark.medium
@given(st.lists(st.text(st.characters(codec="latin-1"))))
def test_any_header_gives_lines(values: list[str]) -> None:
    assert all(text and "\n" not in text for text in parse_warnings(values))
