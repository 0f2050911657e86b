"""Resource quantities (`500m`, `1.5Gi`, `2e3`), exactly: parsing, comparing and printing as the API server prints them.

Source of the rules: the serialization format documented on apimachinery's `resource.Quantity`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_PATTERN = re.compile(r"^([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$")
_EXACT = Context(prec=80)
_NANO = Decimal("1e-9")


@dataclass(frozen=True)
class Quantity:
    """A value and the family of suffixes it is printed with: `binary`, `decimal` or `exponent`."""

    value: Decimal
    family: str = "decimal"

    def __str__(self) -> str:
        return _printed(self)

    def ceiling(self) -> int:
        """The value rounded up to a whole number, as processes and GPUs are counted."""
        return int(self.value.to_integral_value(ROUND_CEILING))


def parse_quantity(text: str | int | float) -> Quantity:
    """The quantity that a text or a JSON number names; digits below a nano are rounded up.

    Raises ValueError naming the text when it is none.
    """
    match = _PATTERN.match(str(text).strip())
    if not match:
        raise ValueError(f"{text!r} is not a quantity: expected a number with an optional suffix such as m, k, Mi, Gi or e3")
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        value, family = _EXACT.multiply(number, Decimal(1024) ** _BINARY[suffix]), "binary"
    elif suffix in _DECIMAL:
        value, family = number.scaleb(_DECIMAL[suffix], _EXACT), "decimal"
    else:
        value, family = number.scaleb(int(suffix[1:]), _EXACT), "exponent"
    return Quantity(_rounded(value), family)


def canonical(text: str | int | float) -> str:
    """The text as the API server writes it back: `1.5Gi` -> `1536Mi`, `1000m` -> `1`."""
    return str(parse_quantity(text))


def _rounded(value: Decimal) -> Decimal:
    return value if value == value.to_integral_value() else value.quantize(_NANO, rounding=ROUND_CEILING, context=_EXACT)


def _printed(quantity: Quantity) -> str:
    value, family = quantity.value, quantity.family
    if value == 0:
        return "0"
    if family == "binary":
        whole = value.to_integral_value(ROUND_CEILING)
        if abs(whole) >= 1024:
            return _binary(int(whole))
        family = "decimal"
    return _decimal(value, exponent=family == "exponent")


def _binary(whole: int) -> str:
    power = 0
    while whole % 1024 == 0 and power < 6:
        whole //= 1024
        power += 1
    return f"{whole}{next((s for s, p in _BINARY.items() if p == power), '')}"


def _decimal(value: Decimal, *, exponent: bool) -> str:
    power = 18
    while power > -9 and value.scaleb(-power, _EXACT) % 1 != 0:
        power -= 3
    mantissa = int(value.scaleb(-power, _EXACT).to_integral_value(ROUND_CEILING))
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[power]}"
