"""Resource quantities (`500m`, `1.5Gi`, `2e3`), and what a pod requests of them.

Parsing, comparison, addition and canonical form are exact. Source: the serialization format of apimachinery's `resource.Quantity`. The
requests are counted like Kubernetes' pod accounting: containers and sidecars are added up, init containers count if they need more,
pod-level requests replace the sum, overhead is added. Limits without requests do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal
from functools import lru_cache, total_ordering
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the programs of a data cache, which have none of our dependencies, read quantities
    from trainwright.api.objects import Obj

Family = Literal["binary", "decimal", "exponent"]

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX = ["", *_BINARY]
_PATTERN = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,9})?", re.ASCII)
_EXACT = Context(prec=200)
_NANO = Decimal("1e-9")
_MOST_BINARY = Decimal(2**63 - 1)
_HIGHEST_POWER = 90
"""The largest exponent that is accepted, because printing a larger one would take unbounded memory."""
_LONGEST = 100
"""Characters of the longest accepted text: with the largest exponent, a number that `_EXACT` still holds exactly. Longer ones fill the
caches, and Python refuses to print numbers with thousands of digits."""


@total_ordering
@dataclass(frozen=True, eq=False)
class Quantity:
    """A value and the suffix family for printing; equality is by value (`1` equals `1000m`)."""

    value: Decimal
    family: Family = "decimal"

    def __str__(self) -> str:
        return _printed(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.value == other.value

    def __lt__(self, other: Quantity) -> bool:
        return self.value < other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __add__(self, other: Quantity) -> Quantity:
        """A sum has the suffix family of its first term, or of the second if the first is zero."""
        return Quantity(_EXACT.add(self.value, other.value), self.family if self.value else other.family)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(_EXACT.subtract(self.value, other.value), self.family if self.value else other.family)

    def __mul__(self, times: int) -> Quantity:
        return Quantity(_EXACT.multiply(self.value, Decimal(times)), self.family)

    def ceiling(self) -> int:
        """The value rounded up to an integer, for counts of processes and GPUs."""
        return int(self.value.to_integral_value(ROUND_CEILING))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Quantity | None:
    match = _PATTERN.fullmatch(text)
    if not match:
        return None
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        return _binary_quantity(_EXACT.multiply(number, Decimal(1024) ** _BINARY[suffix]))
    if suffix in _DECIMAL:
        return Quantity(_rounded(number.scaleb(_DECIMAL[suffix], _EXACT)))
    power = int(suffix[1:])
    if power > _HIGHEST_POWER and number:
        return None
    return Quantity(_rounded(number.scaleb(max(power, -_HIGHEST_POWER), _EXACT)), "exponent")


def parse_quantity(text: str | int | float) -> Quantity:
    """Parse a string or a JSON number; digits below nano are rounded up, away from zero.

    Raises ValueError with the text if it is invalid.
    """
    written = _written(text)
    found = _parsed(written.strip())
    if found is None:
        raise ValueError(f"{written!r} is not a quantity: expected a number with an optional suffix such as m, k, Mi, Gi or e3")
    return found


def canonical(text: str | int | float) -> str:
    """The canonical form, as the API server writes it: `1.5Gi` -> `1536Mi`, `1000m` -> `1`."""
    return _canonical(_written(text))


def _written(text: str | int | float) -> str:
    if isinstance(text, str) and len(text) > _LONGEST:
        raise ValueError(f"{text[:20]}... is not a quantity: it has {len(text)} characters, at most {_LONGEST} are accepted")
    return str(text)


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return str(parse_quantity(text))


def _binary_quantity(value: Decimal) -> Quantity:
    """Capped at 63 bits; values below one use decimal suffixes, because there are no binary ones for them."""
    value = max(min(_rounded(value), _MOST_BINARY), -_MOST_BINARY)
    return Quantity(value, "decimal" if 0 < value.copy_abs() < 1 else "binary")


def _rounded(value: Decimal) -> Decimal:
    return value if _is_whole(value) else value.quantize(_NANO, rounding=ROUND_UP, context=_EXACT)


def _printed(quantity: Quantity) -> str:
    value = quantity.value
    if value == 0:
        return "0"
    if quantity.family == "binary" and value.copy_abs() >= 1024 and _is_whole(value):
        return _binary(int(value))
    return _decimal(value, exponent=quantity.family == "exponent")


def _binary(whole: int) -> str:
    power = 0
    while whole % 1024 == 0 and power < 6:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_SUFFIX[power]}"


def _decimal(value: Decimal, *, exponent: bool) -> str:
    """The largest power of a thousand that leaves an integer; suffixes end at E, exponents do not."""
    power = _HIGHEST_POWER if exponent else 18
    while power > -9 and not _is_whole(value.scaleb(-power, _EXACT)):
        power -= 3
    mantissa = int(value.scaleb(-power, _EXACT).to_integral_value(ROUND_CEILING))
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[power]}"


def _is_whole(value: Decimal) -> bool:
    """Without Python's operators, which round to 28 digits."""
    return value == value.to_integral_value()


Requests = dict[str, Quantity]


def pod_requests(pod_spec: Obj) -> Requests:
    """Return the effective requests of a pod."""
    total: Requests = {}
    for container in pod_spec.get("containers") or []:
        _add(total, _requests(container.get("resources")))
    init_maximum: Requests = {}
    sidecars: Requests = {}
    for container in pod_spec.get("initContainers") or []:
        requested = _requests(container.get("resources"))
        if container.get("restartPolicy") == "Always":
            _add(total, requested)
            _add(sidecars, requested)
            _raise_to(init_maximum, sidecars)
        else:
            _add(requested, sidecars)
            _raise_to(init_maximum, requested)
    _raise_to(total, init_maximum)
    for name, amount in _requests(pod_spec.get("resources")).items():
        if name in ("cpu", "memory") or name.startswith("hugepages-"):
            total[name] = amount
    _add(total, {name: parse_quantity(amount) for name, amount in (pod_spec.get("overhead") or {}).items()})
    return total


def template_requests(pod_spec: Obj) -> Requests:
    """Return the requests of a pod of this template after the API server has defaulted missing requests to the limits."""
    filled = {**pod_spec}
    for group in ("containers", "initContainers"):
        if pod_spec.get(group):
            filled[group] = [{**container, "resources": _with_requests(container)} for container in pod_spec[group]]
    return pod_requests(filled)


def total_requests(parts: Iterable[tuple[int, Requests]]) -> dict[str, str]:
    """Return the sum of (number of pods, requests of one pod) pairs, in canonical form."""
    total: Requests = {}
    for count, requests in parts:
        _add(total, {name: amount * count for name, amount in requests.items()})
    return {name: str(amount) for name, amount in total.items()}


def _with_requests(container: Obj) -> Obj:
    resources = container.get("resources") or {}
    return {**resources, "requests": {**(resources.get("limits") or {}), **(resources.get("requests") or {})}}


def _requests(resources: Obj | None) -> Requests:
    return {name: parse_quantity(amount) for name, amount in ((resources or {}).get("requests") or {}).items()}


def _add(total: Requests, more: Requests) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: Requests, minimum: Requests) -> None:
    for name, amount in minimum.items():
        if name not in total or amount > total[name]:
            total[name] = amount
