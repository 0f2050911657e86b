"""Quantities: a table of printed forms, and the properties that printing, order and arithmetic must keep."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.quantities import Quantity, canonical, parse_quantity

PRINTED = f"""
1.5Gi=1536Mi 1024Mi=1Gi 0.5Ki=512 2500m=2500m 1000m=1 0.5=500m .5=500m 5.=5 +3=3 1000=1k 1024=1024 1500=1500 1e3=1e3 12e6=12e6
1E3=1e3 1e4=10e3 25e-3=25e-3 1e0=1 1e21=1e21 1E=1E 1000E=1000E 0=0 -0=0 0Gi=0 0.0000000001=1n -0.0000000001=-1n 1e-12=1e-9
-1.5=-1500m 2000.0005Ki=2048000512m 0.0001Ki=102400u 1000Ki=1000Ki 1023Ki=1023Ki -2Ki=-2Ki 16Ei={2**63 - 1}
"""


def test_canonical_form() -> None:
    wrong = {
        text: canonical(text)
        for text, _, printed in (row.partition("=") for row in PRINTED.split())
        if canonical(text) != printed
    }
    assert wrong == {}
    assert (canonical(4), canonical(0.1)) == ("4", "100m")


LONG = ["9" * 101, "9" * 5000, "0." + "1" * 5000, "1E" + "9" * 5000, float("inf"), float("nan"), 1e308]
ODD = ["", ".", "+", "abc", "1.2.3", "1 Gi", "Gi", "1gi", "1KI", "1e", "1e1.5", "--1", "0x10", "1e99999", "\u0661"]


@pytest.mark.parametrize("text", [*LONG, *ODD])
def test_parse_quantity_refuses_invalid_texts(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


def test_a_sum_is_printed_like_its_first_term_that_is_something() -> None:
    assert str(parse_quantity("1Gi") + parse_quantity("1G")) == "2073741824"
    assert str(parse_quantity("1G") + parse_quantity("1Gi")) == "2073741824"
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("512Mi") * 3) == "1536Mi"
    assert str(parse_quantity("500m") * 4) == "2"
    assert str(parse_quantity("2") - parse_quantity("500m")) == "1500m"


def test_equal_values_are_equal_whatever_their_suffix() -> None:
    assert parse_quantity("1") == parse_quantity("1000m")
    assert len({parse_quantity("1Ki"), parse_quantity("1024")}) == 1
    assert parse_quantity("1Ki") > parse_quantity("1k")
    assert parse_quantity("1") != 1


numbers = st.decimals(min_value=Decimal("-1e15"), max_value=Decimal("1e15"), places=3)
texts = st.builds(
    lambda number, suffix: f"{number:f}{suffix}",
    numbers,
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E2", "e-2", "e+1"]),
)


@given(texts)
def test_property_printing_keeps_the_value_and_is_canonical(text: str) -> None:
    quantity = parse_quantity(text)
    assert parse_quantity(str(quantity)) == quantity
    assert canonical(str(quantity)) == str(quantity)


@given(texts, texts)
def test_property_quantities_are_ordered_as_their_values(one: str, other: str) -> None:
    a, b = parse_quantity(one), parse_quantity(other)
    assert (a < b) == (a.value < b.value)
    assert (a == b) == (a.value == b.value)
    assert sum([a < b, a == b, a > b]) == 1


@given(texts, texts, texts, st.integers(0, 1000))
def test_property_arithmetic_is_exact(one: str, other: str, third: str, times: int) -> None:
    a, b, c = parse_quantity(one), parse_quantity(other), parse_quantity(third)
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b) - b == a
    assert (a + b) * times == a * times + b * times
    assert parse_quantity(str(a + b)) == a + b


digits = st.from_regex(r"[+-]?[0-9]{0,99}\.?[0-9]{0,99}", fullmatch=True)
suffixes = st.sampled_from(["", "n", "m", "E", "Ki", "Ei"]) | st.from_regex(r"[eE][+-]?[0-9]{1,10}", fullmatch=True)


@pytest.mark.medium
@given(st.text() | st.builds(lambda number, suffix: number + suffix, digits, suffixes) | st.floats() | st.integers())
def test_property_any_text_is_a_quantity_or_an_error(text: str | float) -> None:
    """Whatever is accepted can be printed, read back, added up and multiplied."""
    try:
        printed = canonical(text)
    except ValueError:
        return
    quantity = parse_quantity(printed)
    assert canonical(printed) == printed
    assert str(quantity * 2**62 + quantity - quantity * 3)
    assert abs(quantity.ceiling()) < 10**200


@given(texts)
def test_property_the_ceiling_is_the_next_whole_number(text: str) -> None:
    quantity = parse_quantity(text)
    assert 0 <= quantity.ceiling() - quantity.value < 1
    assert Quantity(Decimal(quantity.ceiling())) >= quantity
