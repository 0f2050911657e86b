"""Checks messages of the v2beta1 API against the models of kfp's generated client, so that the stand-in cannot invent a key.

The models are made from the published OpenAPI of the server; `attribute_map` has the keys of the wire, such as `recurringRuns`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kfp_server_api import models

_LIST, _DICT = re.compile(r"list\[(.+)\]"), re.compile(r"dict\(str, (.+)\)")


def wire_key(model: str, attribute: str) -> str:
    """Return the key with which a message has what the client calls `attribute`."""
    key: str = getattr(models, model).attribute_map[attribute]
    return key


def unknown_keys(message: Any, model: str, where: str = "") -> Iterator[str]:
    """Yield the keys, at any depth, that a message of this type does not have."""
    if (items := _LIST.fullmatch(model)) is not None:
        for index, item in enumerate(message):
            yield from unknown_keys(item, items[1], f"{where}[{index}]")
    elif (values := _DICT.fullmatch(model)) is not None:
        for key, value in message.items():
            yield from unknown_keys(value, values[1], f"{where}.{key}")
    elif fields := getattr(getattr(models, model, None), "attribute_map", {}):
        types = {key: getattr(models, model).openapi_types[attribute] for attribute, key in fields.items()}
        for key, value in message.items():
            if key not in types:
                yield f"{where}.{key} of {model}".removeprefix(".")
            elif value is not None:
                yield from unknown_keys(value, types[key], f"{where}.{key}")
