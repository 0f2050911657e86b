"""What is written as YAML is read as what it was, by PyYAML and by kubectl's own parser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from trainwright.api.objects import name_of
from trainwright.cli import app
from trainwright.runtimes.bundled import bundled_runtimes
from trainwright.text import yaml_writer
from trainwright.text.yaml_writer import to_yaml, to_yaml_documents

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
KEY_OF_OTHERS = "x"


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words("""2e-4 1e5 1E5 -1e+5 +1 -0 1. .5 -.5 1.5e3 1e1000 0 00 08 09.5 017 0o17 0O17 0x1F 0X1f -0x1 0b1 0B1 +0b11
    1_000 _1 1__0 +_1 0x_f 1_ 1,000 9223372036854775808 .inf -.inf +.Inf .nan .NaN""")
TIMES = [*words("12:30:45 1:30 -1:30 190:20:30.15 2001-01-02 2001-1-2 2001-12-14t21:59:43.10-05:00"), "2001-12-14 21:59:43.1"]
WORDS = ["", *words("y Y n N yes Yes YES no NO on On ON off OFF true True TRUE false FALSE ~ null Null NULL = <<")]
SIGNS = [
    *words(". - -- --- ... ? : | > |- { } [a] @a `a %a !a &a *a ' '' \" \"\" it's #a a: :a"),
    "!!int 3",
    "{a: b}",
    "a: b",
    "a #b",
]
SPACES = [" a", "a ", "\ta", "a\t", "a\n", "\na", "a\n\nb", "a\n b", "a \nb", " ", "\n", "- a", "? a", "\\n", "a\\", "a" * 300]
UNICODE = [*"ü日\U0001f600\u2028\u2029\x85\xa0\ufeff\ufffd\ufffe\x7f\x1b\0", "a\ufeff", "a\u2028b", "a\x85b"]
PLAIN = words("10m 8Gi 1.2.3 10.0.0.1 1e e5 0x infinity NaN --lr=2e-4 torch.distributed")
OTHER_TYPES = [*NUMBERS, *TIMES, *WORDS]
AMBIGUOUS = [*OTHER_TYPES, *SIGNS, *SPACES, *UNICODE, *PLAIN]
TEXT = st.one_of(
    st.text(st.sampled_from("0123456789+-._:eExXoObBtTzZ "), max_size=12),
    st.sampled_from(AMBIGUOUS),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.sampled_from(["a", " ", "\n", "\t", "-", "#", ":", "'", '"', "\\", "~", "1", "ü"]), max_size=12).map("".join),
)
VALUES = st.recursive(
    st.one_of(TEXT, st.booleans(), st.none(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=["fast", "plain"], autouse=True)
def _dumper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With libyaml, and as without it."""
    if request.param == "plain":
        monkeypatch.delattr(yaml, "CSafeDumper", raising=False)
    yaml_writer._dumper.cache_clear()
    yield
    yaml_writer._dumper.cache_clear()


def read_by_kubectl(text: str) -> list[dict[str, Any]]:
    """Objects as kubectl reads them, in one call without a cluster."""
    command = [str(KUBECTL), "label", "--local", "--kubeconfig", "/dev/null", "-o", "json", "-f", "-", f"{KEY_OF_OTHERS}=1"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    decoder, rest, found = json.JSONDecoder(), done.stdout.decode().lstrip(), []
    while rest:
        obj, end = decoder.raw_decode(rest)
        del obj["metadata"]["labels"][KEY_OF_OTHERS]
        found.append(obj)
        rest = rest[end:].lstrip()
    return found


def an_object(name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Example", "metadata": {"name": name, "labels": {}}, **content}


@pytest.mark.medium
@given(VALUES)
def test_written_yaml_is_read_back(value: Any) -> None:
    assert yaml.load(to_yaml(value), yaml.SafeLoader) == value
    assert yaml.load(to_yaml(value, sort_keys=False), yaml.CSafeLoader) == value


@pytest.mark.medium
@needs_kubectl
def test_kubectl_reads_ambiguous_texts_as_texts() -> None:
    obj = an_object("a", texts=AMBIGUOUS, keys=dict.fromkeys(AMBIGUOUS, "x"), pairs={text: text for text in AMBIGUOUS})
    assert read_by_kubectl(to_yaml(obj)) == [obj]


@pytest.mark.medium
@needs_kubectl
def test_kubectl_reads_generated_values_as_they_are() -> None:
    """Many values in one call of kubectl, since each takes 50 ms."""
    seen: list[Any] = []

    @given(st.one_of(TEXT, VALUES))
    def collect(value: Any) -> None:
        seen.append(value)

    collect()
    objects = [an_object(f"a{number}", value=value) for number, value in enumerate(seen)]
    assert read_by_kubectl(to_yaml_documents(objects)) == objects


@pytest.mark.medium
@needs_kubectl
def test_kubectl_reads_every_bundled_runtime_as_it_is() -> None:
    for output, between in (("yaml", "---\n"), ("json", "\n")):
        shown = [CliRunner().invoke(app, ["runtimes", "show", name_of(one), "-o", output]).stdout for one in bundled_runtimes()]
        read = read_by_kubectl(between.join(shown))
        for one, expected in zip(read, bundled_runtimes(), strict=True):
            assert {**one, "metadata": {**one["metadata"], "labels": expected["metadata"].get("labels") or {}}} == {
                **expected,
                "metadata": {**expected["metadata"], "labels": expected["metadata"].get("labels") or {}},
            }


@pytest.mark.parametrize("text", OTHER_TYPES)
def test_a_text_that_some_reader_takes_for_another_type_is_quoted(text: str) -> None:
    assert to_yaml({"a": text}) == f"a: '{text}'\n"


def test_plain_words_stay_plain() -> None:
    assert to_yaml({"a": "10m", "b": "8Gi", "c": "torch-distributed"}) == "a: 10m\nb: 8Gi\nc: torch-distributed\n"


def test_shared_parts_are_written_in_full() -> None:
    shared = {"a": ["b"]}
    assert to_yaml([shared, shared]) == "- a:\n  - b\n- a:\n  - b\n"


def test_nothing_else_writes_yaml() -> None:
    """A second writer would leave `2e-4` unquoted again."""
    root = Path(__file__).parents[2]
    folders = ("trainwright", "components", "operators", "pipelines", "dags", "quickstart")
    writers = [
        str(path.relative_to(root))
        for folder in folders
        for path in (root / folder).rglob("*.py")
        if "yaml.dump" in (text := path.read_text("utf-8")) or "yaml.safe_dump" in text
    ]
    assert writers == ["trainwright/text/yaml_writer.py"]
