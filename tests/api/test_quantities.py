from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.quantities import canonical, parse_quantity


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("0.5Ki", "512"),
        ("2500m", "2500m"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("0", "0"),
        (4, "4"),
        ("0.0000000001", "1n"),
        ("-1.5", "-1500m"),
    ],
)
def test_canonical_form(text: str | int, printed: str) -> None:
    assert canonical(text) == printed


@pytest.mark.parametrize("text", ["", "abc", "1.2.3", "1 Gi", "Gi", "1gi", "--1", "0x10"])
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@given(
    st.decimals(min_value=Decimal("-1e15"), max_value=Decimal("1e15"), places=3),
    st.sampled_from(["", "m", "k", "Ki", "Mi", "Gi"]),
)
def test_property_printing_keeps_the_value(number: Decimal, suffix: str) -> None:
    quantity = parse_quantity(f"{number}{suffix}")
    printed = parse_quantity(str(quantity))
    assert printed.value >= quantity.value  # binary forms round up to whole numbers
    assert printed.value - quantity.value < 1
    if quantity.family == "decimal":
        assert str(printed) == str(quantity)
