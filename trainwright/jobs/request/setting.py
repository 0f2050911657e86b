"""What is known of one setting of a step: a row of the tables that `make edges` writes from the request models.

Has no imports of the project: Airflow loads the tables whenever it parses a DAG.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Kind = Literal["text", "integer", "number", "seconds", "flag", "object", "list", "function", "manifest"]


Place = Literal["", "uri", "inside", "here"]
"""What a setting says of places: the URI of one, a structure with URIs, claims or paths in it, or what is read here, where the request
is made: files of this machine, and repositories, with the credentials of this process."""


class Setting(NamedTuple):
    """A setting. `default` is None for an optional one without a value, `choices` are the only texts that it may have.

    `used_by` are the parts of a step, besides the training itself, that take it too: `wait`, `evaluate` and `step`, which is a step of
    files that runs in a pod.
    """

    name: str
    kind: Kind
    default: Any
    group: str
    description: str
    choices: tuple[str, ...] = ()
    unit: str = ""
    example: str = ""
    used_by: tuple[str, ...] = ()
    place: Place = ""
