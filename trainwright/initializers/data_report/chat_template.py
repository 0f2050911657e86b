"""Renders conversations with a model's chat template exactly as transformers does, without transformers.

Templates are programs of others, so they run in jinja2's sandbox and see plain data only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from trainwright.initializers.errors import InitializerError

Message = dict[str, Any]

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Names that the reasoning of a message has in different sources."""
_RENDER_ERRORS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class TemplateRejects(InitializerError):
    """The template is not valid, or raises an error for a conversation, as in the training."""


class ChatTemplate:
    """A compiled template; `defaults` are the names of special tokens, which it may write."""

    def __init__(self, source: str, defaults: dict[str, str]):
        """Raises TemplateRejects for a source that is not a template."""
        from jinja2 import TemplateError

        self._defaults = defaults
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            raise TemplateRejects(f"the chat template is not valid: {error}") from error

    def render(self, messages: list[Message], tools: Any = None, *, generation: bool = False, **settings: Any) -> str:
        """Return the text of a conversation, with `generation` up to where the assistant goes on.

        `settings` are those of the row's `chat_template_kwargs`. Raises TemplateRejects.
        """
        from jinja2 import TemplateError

        variables = {"documents": None, "add_generation_prompt": generation, **self._defaults, **settings}
        try:
            return str(self._template.render(messages=[_message(message) for message in messages], tools=tools, **variables))
        except (TemplateError, *_RENDER_ERRORS) as error:
            raise TemplateRejects(f"the chat template rejects the messages: {str(error)[:300]}") from error


def _message(message: Message) -> Message:
    present = {name: value for name, value in message.items() if value is not None}
    reasoning = next((present[name] for name in _REASONING if name in present), None)
    return present if reasoning is None else {"thinking": reasoning, **present, "reasoning_content": reasoning}


def _environment() -> Any:
    """Return the environment with the settings, filters and names that transformers gives to templates."""
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation_extension(), loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals.update(
        raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_new_dict, namespace=_namespace_type()
    )
    return environment


def _generation_extension() -> Any:
    """Return the tag `generation`, which marks what the assistant says and changes nothing of it."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

        def _said(self, caller: Callable[[], str]) -> str:
            return caller()

    return Generation


def _namespace_type() -> Any:
    """Return jinja2's namespace without names that begin with an underscore: they lead to the interior of Python."""
    from jinja2.exceptions import SecurityError
    from jinja2.utils import Namespace

    class GuardedNamespace(Namespace):
        def __init__(*args: Any, **kwargs: Any) -> None:
            this, args = args[0], args[1:]
            values = dict(*args, **kwargs)
            for name in values:
                _check_name(name, SecurityError)
            Namespace.__init__(this, values)

        def __setitem__(self, name: str, value: Any) -> None:
            _check_name(name, SecurityError)
            super().__setitem__(name, value)

    return GuardedNamespace


def _check_name(name: Any, error: type[Exception]) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise error(f"the name {name!r} is not allowed in a namespace")


def _new_dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:
    """Jinja's own filter escapes HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
