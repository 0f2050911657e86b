"""The options of sshd and ssh that matter to what stands in for them; all others are skipped, with their values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PORT = 2222
"""The port of Trainer's images, in the configuration of their sshd and ssh."""
_SSH_VALUES = "BbcDEeFIiJLlmOoPpQRSWw"
_SSHD_VALUES = "bCcEfghkopu"
"""Options with a value, from ssh(1) and sshd(8)."""


class OptionError(Exception):
    """A command line that ssh would not take either."""


@dataclass(frozen=True)
class SshCommand:
    """`command` is what the remote shell gets: words are joined by spaces, as ssh does. `attempts` are at least 1."""

    host: str
    command: str
    port: int = PORT
    attempts: int = 1
    reads_input: bool = True


def parse_ssh(arguments: Sequence[str]) -> SshCommand:
    """Parse the arguments of ssh. Raises OptionError."""
    port, attempts, reads_input, host = PORT, 1, True, ""
    rest: Sequence[str] = arguments
    while rest:
        options, rest = _split(rest, _SSH_VALUES)
        for name, value in options:
            if name == "p":
                port = _number("port", value, 65535)
            elif name == "n":
                reads_input = False
            elif name == "o":
                key, _, setting = value.replace("=", " ", 1).strip().partition(" ")
                if key.lower() == "port":
                    port = _number("Port", setting, 65535)
                elif key.lower() == "connectionattempts":
                    attempts = _number("ConnectionAttempts", setting, 10_000)
        if host or not rest:
            break
        host, rest = rest[0].rpartition("@")[2], rest[1:]  # options may follow the host, too
    if not host:
        raise OptionError("no host is named")
    if not rest:
        raise OptionError("no command is named: there are no terminals")
    return SshCommand(host, " ".join(rest), port, max(attempts, 1), reads_input)


def sshd_port(arguments: Sequence[str]) -> int:
    """Return the port in the arguments of sshd. Raises OptionError."""
    port = PORT
    for name, value in _split(arguments, _SSHD_VALUES)[0]:
        key, _, setting = value.replace("=", " ", 1).strip().partition(" ")
        if name == "p":
            port = _number("port", value, 65535)
        elif name == "o" and key.lower() == "port":
            port = _number("Port", setting, 65535)
    return port


def sshd_configuration(arguments: Sequence[str]) -> str:
    """Return the file that the arguments of sshd name as its configuration, or an empty string. Raises OptionError."""
    return next((value for name, value in _split(arguments, _SSHD_VALUES)[0] if name == "f"), "")


def _split(arguments: Sequence[str], with_values: str) -> tuple[list[tuple[str, str]], Sequence[str]]:
    """Return the options at the beginning, as getopt reads them, and what follows them."""
    found: list[tuple[str, str]] = []
    words: Iterator[str] = iter(arguments)
    taken = 0
    for word in words:
        if word == "--":
            taken += 1
            break
        if len(word) < 2 or not word.startswith("-"):
            break
        taken += 1
        for at, letter in enumerate(word[1:], 2):
            if letter not in with_values:
                found.append((letter, ""))
                continue
            value = word[at:]
            if not value:
                taken += 1
                value = next(words, "")
                if taken > len(arguments):
                    raise OptionError(f"option -{letter} needs a value")
            found.append((letter, value))
            break
    return found, arguments[taken:]


def _number(name: str, text: str, most: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or not 0 < int(text) <= most:
        raise OptionError(f"{name}: expected a number from 1 to {most}, got {text!r}")
    return int(text)
