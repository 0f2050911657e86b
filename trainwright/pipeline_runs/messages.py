"""Reads answers of a server under the names of kfp's client: keys of the wire differ in places, such as `recurringRuns`.

The names are those of the client's own `attribute_map`, made from the OpenAPI of the server, at any depth of an answer.
"""

from __future__ import annotations

import re
from typing import Any

from trainwright.api.objects import Obj

_LIST, _DICT = re.compile(r"list\[(.+)\]"), re.compile(r"dict\(str, (.+)\)")


def read_message(message: Obj, model: str) -> Obj:
    """Return an answer with its keys renamed to the attributes of the model; keys that it does not have stay as they are.

    Raises AttributeError if the client has no such model.
    """
    from kfp_server_api import models

    getattr(models, model)
    read: Obj = _read(message, model, models)
    return read


def _read(value: Any, model: str, models: Any) -> Any:
    if isinstance(value, list) and (items := _LIST.fullmatch(model)) is not None:
        return [_read(item, items[1], models) for item in value]
    if not isinstance(value, dict):
        return value
    if (values := _DICT.fullmatch(model)) is not None:
        return {key: _read(each, values[1], models) for key, each in value.items()}
    known = getattr(models, model, None)
    attributes = {key: attribute for attribute, key in getattr(known, "attribute_map", {}).items()}
    types = getattr(known, "openapi_types", {})
    names = {key: attributes.get(key, key) for key in value}
    return {name: _read(value[key], types.get(name, ""), models) for key, name in names.items()}
