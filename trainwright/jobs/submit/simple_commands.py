"""Finds the commands that a person's command starts: behind `timeout 60`, in the text of `bash -c`, in a list of shells. Pure.

What is not read with certainty is left out, as the rest of a text with an open quote, or stands as it is, as behind a wrapper that is
not in `_WRAPPERS`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

_SHELLS = ("sh", "bash", "dash", "zsh", "ash", "ksh")
_KEYWORDS = ("if", "then", "elif", "else", "while", "until", "do", "!", "{")
_WRAPPERS: dict[str, tuple[str, int]] = {
    # The options that take the next word, and the number of words that stand between the options and the command.
    **dict.fromkeys(("nohup", "setsid", "busybox", "unbuffer", "builtin"), ("", 0)),
    "env": ("-u --unset -C --chdir -S", 0),
    "exec": ("-a", 0),
    "command": ("-v -V", 0),
    "time": ("-f --format -o --output", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c --class -n --classdata", 0),
    "timeout": ("-s --signal -k --kill-after", 1),
    "taskset": ("", 1),
    "stdbuf": ("-i --input -o --output -e --error", 0),
    "numactl": ("-N --cpunodebind -m --membind -C --physcpubind -i --interleave -p --preferred", 0),
    "tini": ("-p -e", 0),
    "dumb-init": ("-r --rewrite", 0),
    "sudo": ("-u --user -g --group -h --host -p --prompt -C -D --chdir -R -T", 0),
    "gosu": ("", 1),
    "uv run": (
        "--with --with-editable --with-requirements --extra --group --package --project --directory -p --python --env-file --index",
        0,
    ),
    **dict.fromkeys(("conda run", "mamba run", "micromamba run"), ("-n --name -p --prefix --cwd", 0)),
    **dict.fromkeys(("poetry run", "pipenv run", "pdm run", "pixi run", "hatch run", "rye run"), ("", 0)),
    "nsys profile": ("-o --output -t --trace -s --sample -c --capture-range", 0),
}
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_HEREDOC = re.compile(r"(?<!<)<<(?!<)-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n(?:.*?\n)??[ \t]*\2$", re.DOTALL | re.MULTILINE)
_QUOTED_OR_DROPPED = re.compile(
    r"""('[^']*'|"(?:\\.|[^"\\])*"|\\.)"""  # stays
    r"|(?<![^\s;&|()])(?:\#[^\n]*|\d(?=[<>]))",  # a comment, and the number of a stream that is redirected
    re.DOTALL,
)
_PUNCTUATION = ";&|()<>\n"


class SimpleCommand(NamedTuple):
    """A program with its arguments, and the variables that are set for it; None for one that is removed."""

    words: list[str]
    variables: dict[str, str | None]


def simple_commands(words: Sequence[str], variables: dict[str, str | None] | None = None) -> Iterator[SimpleCommand]:
    """Yield the commands that a command starts, in their order, without wrappers; `variables` are those set before it."""
    exported = {} if variables is None else variables
    rest, own = [*words], dict(exported)
    while rest and (size := _size_of_wrapper(rest, own)):
        before, rest = rest[:size], rest[size:]
        if "-S" in before[:-1]:  # of `env`, whose command is a text
            yield from _of_script(f"{before[before.index('-S') + 1]} {shlex.join(rest)}", own)
            return
    name = PurePosixPath(rest[0]).name if rest else ""
    if not rest or name in ("export", "declare", "unset"):
        exported.update(own)
        exported.update((found[1], found[2]) for word in rest if (found := _ASSIGNMENT.fullmatch(word)))
        exported.update(dict.fromkeys(rest[1:] if name == "unset" else ()))
    elif name == "eval":
        yield from _of_script(" ".join(rest[1:]), own)
    elif name in _SHELLS and (script := _script(rest)) is not None:
        yield from _of_script(script, own)
    else:
        yield SimpleCommand(rest, own)


def _size_of_wrapper(words: Sequence[str], variables: dict[str, str | None]) -> int:
    """Return how many words stand before the wrapped command, and note what they set; 0 for a command without a wrapper."""
    if found := _ASSIGNMENT.fullmatch(words[0]):
        variables[found[1]] = found[2]
        return 1
    name = PurePosixPath(words[0]).name
    if name in _KEYWORDS:
        return 1
    at = 2 if f"{name} {' '.join(words[1:2])}" in _WRAPPERS else 1
    if (wrapper := _WRAPPERS.get(" ".join([name, *words[1:at]]))) is None:
        return 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            at += 1
            break
        option, _, value = words[at].partition("=")
        takes_next = option in wrapper[0].split() and not value
        if name == "env" and option in ("-", "-i", "--ignore-environment"):
            variables["PET_NNODES"] = None
        elif name == "env" and option in ("-u", "--unset"):
            variables[value or "".join(words[at + 1 : at + 2])] = None
        at += 2 if takes_next else 1
    return min(at + wrapper[1], len(words))


def _script(words: Sequence[str]) -> str | None:
    """Return the text that a shell runs; None if it runs a file."""
    at, of_text = 1, False
    while at < len(words) and words[at][:1] in ("-", "+"):
        option = words[at]
        at += 1
        if option == "--":
            break
        if not option.startswith("--"):
            of_text = of_text or (option[0] == "-" and "c" in option)
            at += option[-1] in "oO"  # as in `-euo pipefail`
    return words[at] if of_text and at < len(words) else None


def _of_script(script: str, variables: dict[str, str | None]) -> Iterator[SimpleCommand]:
    text = _HEREDOC.sub(r"\3", script.replace("\\\n", ""))
    lexer = shlex.shlex(_QUOTED_OR_DROPPED.sub(lambda found: found[1] or "", text), posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace_split, lexer.whitespace, lexer.commenters = True, " \t\r", ""
    current: list[str] = []
    is_file = False
    try:
        for token in lexer:
            if is_file and not set(token) <= set(_PUNCTUATION):
                is_file = False
            elif set(token) <= set(";&|()<>\n") and token:
                is_file = token[-1] in "<>" or token in (">&", "<&", "&>", ">|")
                if not is_file:
                    yield from simple_commands(current, variables)
                    current = []
            else:
                current.append(token)
    except ValueError:  # a quote without its end: of the rest nothing is known
        return
    yield from simple_commands(current, variables)
