"""What kfp's compiler accepts and gets wrong is refused when a pipeline is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.source import compile_pipeline

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("compiles_here")]

HEADER = """
from typing import List
from kfp import dsl


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def see(s: str = "", u: dict = {}, n: int = 0):
    pass


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def copied(words: list) -> List[str]:
    return words


@dsl.pipeline
def flow(configs: list = [], words: List[str] = [], s: str = ""):
"""


def compiled(folder: Path, *lines: str) -> None:
    file = folder / "flow.py"
    file.write_text(HEADER + "".join(f"    {line}\n" for line in lines), "utf-8")
    compile_pipeline(str(file))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["with dsl.ParallelFor(configs) as c:", "    see(s=c.name)"], "see: the input 's' is the name of a loop's item"),
        (
            ["with dsl.ParallelFor(configs) as c:", "    see(u={'a': [c.name]})"],
            "see: the input 'u' is the name of a loop's item",
        ),
        (
            ["with dsl.ParallelFor([{'a': 1}]) as c:", "    see(s='x ' + c.name)"],
            "see: the input 's' is the name of a loop's item",
        ),
        (
            ["with dsl.ParallelFor(words) as a:", "    with dsl.ParallelFor(words) as b:", "        see(s=b)"],
            "it is in a loop over the same list",
        ),
        (["see(s=f'{words}')"], "see: kfp does not put 'words' into the text of the input 's'"),
        (["see(s=f'{copied(words=words).output}!')"], "see: kfp does not put 'Output' into the text of the input 's'"),
        (["with dsl.If(s == 'C:\\\\new'):", "    see()"], "condition-1: a server reads a backslash in the text of a condition"),
        (["see().set_env_variable('A', f'{s}')"], "see: kfp does not put 's' into the variable A"),
        (
            ["with dsl.ParallelFor(configs) as c:", "    with dsl.If(c.epochs > 16):", "        see(s='long')"],
            "'configs.epochs' is text to kfp, and not compared as a number",
        ),
    ],
)
def test_confused_value_is_refused_with_its_task(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(BadPipeline) as raised:
        compiled(tmp_path, *lines)
    assert said in str(raised.value)


def test_field_name_that_kfp_cannot_have_is_explained(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match="kfp cannot have a field 'name' in an item of a loop"):
        compiled(tmp_path, "with dsl.ParallelFor([{'name': 'a'}]) as c:", "    see(s=c.name)")


@pytest.mark.parametrize("default", ["one\nkey: value", "\ncomponents:\n", "a\u2028b", "# x\n# y"])
def test_default_with_lines_compiles(tmp_path: Path, default: str) -> None:
    file = tmp_path / "flow.py"
    file.write_text(HEADER.replace('s: str = ""', f"s: str = {default!r}") + "    see(s=s)\n", "utf-8")
    assert compile_pipeline(str(file)).parameters["s"].default == default


@pytest.mark.parametrize(
    "lines",
    [
        [
            "with dsl.ParallelFor(configs) as c:",
            "    see(s=c.title)",
            "    with dsl.If(c.epochs == 16):",
            "        see(s='configs')",
        ],
        ["with dsl.ParallelFor(words) as a:", "    with dsl.ParallelFor(copied(words=words).output) as b:", "        see(s=b)"],
        ["see(s=f'{s} and loop-item').set_env_variable('A', 'literal')", "see(u={'words': words})"],
    ],
)
def test_ordinary_pipelines_compile(tmp_path: Path, lines: list[str]) -> None:
    compiled(tmp_path, *lines)
