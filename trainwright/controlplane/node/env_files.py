"""Variables from files that another container of the pod has written (`fileKeyRef`).

The syntax is a part of the shell's: `NAME='value'`, values over several lines, comments. Source: pkg/kubelet/util/env of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainwright.api.objects import Obj
from trainwright.controlplane.node.volumes.errors import ConfigError
from trainwright.controlplane.node.volumes.maker import MadeVolume
from trainwright.controlplane.node.volumes.sub_paths import SubPathEscape, read_in_volume

_LARGEST = 64 * 1024
_IGNORED = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"[ \t]*(?P<name>[^\n=]*)(?P<equals>=?)")
_EMPTY = re.compile(r"[ \t][^\n]*(?:\n|\Z)")
"""Like in a shell: with a space after `=` the value is empty."""
_QUOTED = re.compile(r"'(?P<value>[^']*)'(?P<rest>[ \t]*(?:#[^\n]*)?(?:\n|\Z))?")


def value_in_file(reference: Obj, volumes: Mapping[str, MadeVolume]) -> str | None:
    """Return the value of a fileKeyRef, or None for an optional one that there is not.

    `volumes` are those of the pod. Raises ConfigError for a missing file or key, or a file in another syntax.
    """
    name, path, key = reference["volumeName"], reference["path"], reference["key"]
    volume = volumes.get(name)
    if volume is None:
        raise ConfigError(f'cannot find the volume "{name}" for environment variable key "{key}"')
    try:
        content = read_in_volume(volume.path, path, _LARGEST + 1)
    except FileNotFoundError:
        if reference.get("optional"):
            return None
        raise ConfigError(f'environment variable file "{path}" not found in volume "{name}"') from None
    except (OSError, SubPathEscape) as error:
        raise ConfigError(f'environment variable file "{path}" of volume "{name}" cannot be read') from error
    if len(content) > _LARGEST:
        raise ConfigError(f'environment variable file "{path}" of volume "{name}" has more than {_LARGEST} bytes')
    for found, value in parse_env_file(content.decode("utf-8", "surrogateescape")):
        if found == key:
            return value
    if reference.get("optional"):
        return None
    raise ConfigError(f'environment variable key "{key}" not found in file "{path}" of volume "{name}"')


def parse_env_file(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values in order. Raises ConfigError, with the number of the line, where the syntax is another."""
    text = text.replace("\r\n", "\n").removesuffix("\r")
    position = 0
    while position < len(text):
        if ignored := _IGNORED.match(text, position):
            position = ignored.end()
            continue
        name = _name(text, position)
        if empty := _EMPTY.match(text, name.end()):
            yield name["name"], ""
            position = empty.end()
            continue
        quoted = _quoted(text, name.end())
        yield name["name"], quoted["value"]
        position = quoted.end()


def _name(text: str, position: int) -> re.Match[str]:
    found = _NAME.match(text, position)
    if found is None or not found["equals"]:
        raise _invalid(text, position, "missing '='")
    if not found["name"]:
        raise _invalid(text, position, "empty variable name")
    if found["name"] != found["name"].rstrip(" \t"):
        raise _invalid(text, position, "whitespace before '=' is not allowed")
    return found


def _quoted(text: str, position: int) -> re.Match[str]:
    if text[position : position + 1] != "'":
        raise _invalid(text, position, "value must be enclosed in single quotes")
    found = _QUOTED.match(text, position)
    if found is None:
        raise _invalid(text, position, "unclosed single quote", "starting at")
    if found["rest"] is None:
        raise _invalid(text, found.end(), "unexpected content after closing quote")
    return found


def _invalid(text: str, position: int, why: str, where: str = "at") -> ConfigError:
    line = text.count("\n", 0, position) + 1
    return ConfigError(f"invalid environment variable format {where} line {line}: {why}")
