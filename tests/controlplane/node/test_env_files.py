"""The syntax of files with variables: what a shell would read too, and what is refused with its line."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.controlplane.node.environment import parse_env_file
from trainwright.controlplane.node.volumes.references import ConfigError

WELL_FORMED = [
    ("A='1'\nB='2'\n", {"A": "1", "B": "2"}),
    ("   A='1'\n\t\tB='2'", {"A": "1", "B": "2"}),
    ("# comment\n\nA='1'\n   # another\n", {"A": "1"}),
    ("A='1#2'", {"A": "1#2"}),
    ("A='  spaces  '", {"A": "  spaces  "}),
    ("A=''", {"A": ""}),
    ("A='1=2=3'", {"A": "1=2=3"}),
    ("A='1' # comment\nB='2'#3", {"A": "1", "B": "2"}),
    ("A='$B ${B} $(B) `B` \\n \"q\"'", {"A": '$B ${B} $(B) `B` \\n "q"'}),
    ("A='two\n  lines\n\n'\nB='2'", {"A": "two\n  lines\n\n", "B": "2"}),
    ("A='中文 🌍'", {"A": "中文 🌍"}),
    ("A= 'dropped'\nB='2'", {"A": "", "B": "2"}),
    ("", {}),
    ("\n# nothing", {}),
]


@pytest.mark.parametrize(("text", "values"), WELL_FORMED)
def test_parser_reads_well_formed_files(text: str, values: dict[str, str]) -> None:
    assert dict(parse_env_file(text)) == values


def shell_value(text: str, name: str) -> str:
    """What a shell that has read the text has in a variable."""
    program = f'eval "$1"; printf "%s" "${{{name}}}"'
    return subprocess.run(["sh", "-c", program, "sh", text], capture_output=True, check=True).stdout.decode()


@pytest.mark.parametrize("text", ["A='1'\nB='2' # c\n", "A='x\ny'\n\tB='$A \"q\"'", "#\nA=''\nB='#'"])
def test_a_shell_reads_the_same(text: str) -> None:
    assert dict(parse_env_file(text)) == {name: shell_value(text, name) for name in "AB"}


def test_lines_may_end_like_on_windows() -> None:
    assert dict(parse_env_file("A='1'\r\nB='x\r\ny'\r\n\r\nC='3'\r")) == {"A": "1", "B": "x\ny", "C": "3"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "at line 1: missing '='"),
        ("A='1'\n\nB\nC='3'", "at line 3: missing '='"),
        ("='1'", "at line 1: empty variable name"),
        ("A ='1'", "at line 1: whitespace before '=' is not allowed"),
        ("A='1'\nB\t='2'", "at line 2: whitespace before '=' is not allowed"),
        ("A=1", "at line 1: value must be enclosed in single quotes"),
        ('A="1"', "at line 1: value must be enclosed in single quotes"),
        ("A=\nB='2'", "at line 1: value must be enclosed in single quotes"),
        ("A='1''2'", "at line 1: unexpected content after closing quote"),
        ("A='1' 2", "at line 1: unexpected content after closing quote"),
        ("A='x\ny' z", "at line 2: unexpected content after closing quote"),
        ("A='1'\nB='2\nC='3'\n", "at line 3: unexpected content after closing quote"),
        ("A='1'\nB='2\n", "starting at line 2: unclosed single quote"),
    ],
)
def test_parser_names_the_line_of_an_error(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        list(parse_env_file(text))
    assert str(caught.value) == f"invalid environment variable format {why}"


@pytest.mark.medium
@given(
    st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), st.text().filter(lambda text: "'" not in text))
)
def test_property_values_without_quotes_are_read_as_they_were_written(values: dict[str, str]) -> None:
    values = {name: value.replace("\r", "") for name, value in values.items()}
    text = "".join(f"{name}='{value}'\n" for name, value in values.items())
    assert dict(parse_env_file(text)) == values


@given(st.text(alphabet=st.sampled_from("AB=' #\n\t\r\\\""), max_size=30))
def test_property_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    found, problem = [], ""
    try:
        for entry in parse_env_file(text):
            found.append(entry)
    except ConfigError as error:
        problem = str(error)
    assert all(name and "=" not in name for name, _ in found)
    assert not problem or re.search(r"line [1-9]\d*: ", problem)
