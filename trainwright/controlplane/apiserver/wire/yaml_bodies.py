"""Decodes YAML bodies as Kubernetes does: timestamps stay strings, numbers are JSON numbers, aliases are rejected.

libyaml parses each body twice: first as a stream of events, which safely detects aliases and deep nesting, then into a value.
"""

from __future__ import annotations

from typing import Any

import orjson
import yaml

from trainwright.controlplane.apiserver.wire.limits import BODY_DEPTH
from trainwright.text.yaml_writer import to_yaml

_Fast: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_PREFIX = "tag:yaml.org,2002:"


def decode_yaml(body: bytes) -> Any:
    """Decode a body into JSON-compatible values. Raises ValueError with the reason."""
    try:
        depth = 0
        for event in yaml.parse(body, Loader=_Fast):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("aliases are not supported")
            depth += isinstance(event, _OPENING)
            depth -= isinstance(event, _CLOSING)
            if depth > BODY_DEPTH:
                raise ValueError("exceeded max depth")
        content = yaml.load(body, Loader=_Loader)  # noqa: S506 - a SafeLoader with less
        # A round trip through JSON converts keys to strings.
        return orjson.loads(orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS))
    except (yaml.YAMLError, TypeError, RecursionError, OverflowError, LookupError, AttributeError) as error:
        # Besides its own errors, PyYAML raises various others for unusual tagged values.
        raise ValueError(str(error)) from None


def encode_yaml(content: Any) -> bytes:
    """Serialize a response as YAML."""
    return to_yaml(content, sort_keys=True).encode()


class _Loader(_Fast):  # type: ignore[misc]
    pass


def _whole(loader: Any, node: yaml.ScalarNode) -> Any:
    # No base 60 (`1:30`): Kubernetes reads it as a string, and long ones take minutes to parse.
    if ":" in str(node.value):
        return loader.construct_scalar(node)
    return yaml.constructor.SafeConstructor.construct_yaml_int(loader, node)


def _number(loader: Any, node: yaml.ScalarNode) -> Any:
    if ":" in str(node.value):
        return loader.construct_scalar(node)
    value = yaml.constructor.SafeConstructor.construct_yaml_float(loader, node)
    if value != value or value in (float("inf"), float("-inf")):
        raise yaml.YAMLError(f"json: unsupported value: {node.value}")
    return value


_Loader.add_constructor(f"{_PREFIX}int", _whole)
_Loader.add_constructor(f"{_PREFIX}float", _number)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_PREFIX}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
