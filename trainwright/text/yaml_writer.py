"""The one writer of YAML: whatever it writes, YAML 1.1 and YAML 1.2 readers take for the value that was given.

PyYAML quotes what YAML 1.1 reads as another type. kubectl reads the numbers of YAML 1.2 and of Go as well: `2e-4`, `0o17`, `08`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

_OTHER_TYPE = re.compile(
    r"""
      [-+]?[._]*[0-9][0-9A-Fa-f_.,:XxOo+-]*                # numbers of any base, times, addresses; also 2e-4 and 1e5
    | [0-9]{4}-[0-9].*                                     # dates and timestamps
    | [-+]?[.](?:inf|nan)                                  # floating-point constants
    | y | n | yes | no | on | off | true | false           # booleans
    | ~ | null | = | << |                                  # null, default value, merge key, empty
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Texts that some reader takes for another type, and some that none does: quotes do no harm."""
_OTHER_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks in YAML 1.1 only; PyYAML escapes them in double quotes only."""
_REORDERING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Marks that let a text look like another; PyYAML would write them as they are."""
_NO_WRAPPING = 2**31 - 1


def to_yaml(value: Any, *, sort_keys: bool = False) -> str:
    """Return JSON-shaped data as one YAML document, without aliases and line wrapping; keys in the given order, or sorted."""
    return to_yaml_documents([value], sort_keys=sort_keys)


def to_yaml_documents(values: Iterable[Any], *, sort_keys: bool = False) -> str:
    """As `to_yaml`, for several documents, separated by `---`."""
    import yaml

    dumper = _dumper()
    text = str(yaml.dump_all(values, Dumper=dumper, sort_keys=sort_keys, allow_unicode=True, width=_NO_WRAPPING))
    return _REORDERING.sub(lambda found: f"\\u{ord(found[0]):04X}", text)


@cache
def _dumper() -> Any:
    """Return the dumper class. PyYAML is imported on first use: most imports of the library never write YAML."""
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            """Write shared parts in full: people edit them, and kubectl rejects documents with many aliases."""
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        style = "'" if _OTHER_TYPE.fullmatch(text) else '"' if _OTHER_BREAKS.search(text) or _REORDERING.search(text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent_text)
    return Dumper
