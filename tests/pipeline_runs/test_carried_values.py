"""Values that a server would not carry as they are written: texts inside objects, which are warned of, large integers, and `$$`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pipeline_commands import Run
from servers.kfp_api_server import KfpApiServer

import trainwright
from trainwright.pipeline_runs.errors import BadPipeline
from trainwright.pipeline_runs.run_checks import doubled_dollars, forgotten_values, object_texts
from trainwright.pipeline_runs.source import compile_pipeline
from trainwright.steps.run import changed_values, prepare

pytestmark = [pytest.mark.medium, pytest.mark.usefixtures("compiles_here")]

HEADER = """
from kfp import dsl
from trainwright.components import train, train_function


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def see(u: dict, v: list = [], n: int = 3):
    print(u)


@dsl.component(base_image="python:3.11", install_kfp_package=False)
def ask() -> str:
    return "x"


@train_function(num_nodes=1)
def fit(seed: int, words: list = [], big: int = 1152921504606846977):
    pass


@dsl.pipeline
def flow(s: str = "x", n: int = 3, f: float = 1.0, b: bool = True, words: list = [], options: dict = {}, large: int = DEFAULT):
"""


@pytest.fixture
def source(tmp_path: Path):
    def write(*lines: str, default: str = "0") -> str:
        file = tmp_path / "flow.py"
        file.write_text(HEADER.replace("DEFAULT", default) + "".join(f"    {line}\n" for line in lines), "utf-8")
        return str(file)

    return write


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["see(u={'a': s})"], ["see: the text 's' inside 'u'"]),
        (["see(u={'a': [{'b': words}]})"], ["see: the list 'words' inside 'u'"]),
        (["see(u=options, v=[options])"], ["see: the object 'options' inside 'v'"]),
        (["see(u={'a': f'{s}.{s}', 'b': n})"], ["see: the text 's' inside 'u'"]),
        (["see(u={'a': ask().output})"], ["see: the text 'ask.Output' inside 'u'"]),
        (["train(run_id='r', func_args={'a': s})"], ["train: the text 's' inside 'func_args'"]),
        (["fit(seed=1, env={'A': s})"], ["fit: the text 's' inside 'env'"]),
        (
            [
                "with dsl.If(n == 3):",
                "    with dsl.ParallelFor(words) as word:",
                "        see(u={'a': word, 'b': word.rate, 'c': s})",
            ],
            [
                "see: the text 's' inside 'u'",
                "see: the text 'words.rate' inside 'u'",
                "see: the text that is an item of 'words' inside 'u'",
            ],
        ),
        (["see(u={'a': n, 'b': f, 'c': b})"], []),
        (["see(u=options, v=words)", "fit(seed=n, words=words)"], []),
        (["train(run_id=s, model_uri=s).set_cpu_limit(s)"], []),
    ],
)
def test_text_inside_an_object_is_warned_of(source, lines: list[str], found: list[str]) -> None:
    warnings = object_texts(compile_pipeline(source(*lines)))
    assert sorted(each.partition(": a quote")[0] for each in warnings) == found


@pytest.mark.parametrize(
    ("value", "arrived", "changed"),
    [
        ("C:\\new", {"a": "C:\new"}, ["s"]),
        ('x", "b": "y', {"a": "x", "b": "y"}, ["s"]),
        ("C:\\new", "C:\\new", []),
        ("C:/new", {"a": "C:/new"}, []),
    ],
    ids=["escape", "quotes", "whole", "plain"],
)
def test_text_that_a_server_has_changed_fails_the_step(value: str, arrived: object, changed: list[str]) -> None:
    given = {"inputs": {"parameterValues": {"u": arrived, "pipelinechannel--s": value}}}
    assert changed_values(given) == changed
    if changed:
        with pytest.raises(SystemExit, match="'s' has a quote or a backslash"):
            prepare(trainwright.__version__, given)


def test_warning_of_a_text_inside_an_object_is_printed(run: Run, kfp: KfpApiServer, source, tmp_path: Path) -> None:
    file = source("see(u={'a': s})")
    for words in (("compile", file, "-O", str(tmp_path / "flow.yaml")), ("run", file, "--host", kfp.url)):
        result = run("pipeline", *words)
        assert result.exit_code == 0, result.output
        assert "warning: see: the text 's' inside 'u': a quote or a backslash in it" in result.stderr


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (
            ["with dsl.ParallelFor([1, 2]) as i:", "    with dsl.ParallelFor(['a']) as j:", "        see(u={}, v=[f'{j}'])"],
            ["the item of a loop"],
        ),
        (["with dsl.ParallelFor([{'a': 'x'}]) as i:", "    see(u={'k': i.a})"], ["the field 'a' of a loop's item"]),
        (["with dsl.ParallelFor([1, 2]) as i:", "    see(u={}, n=i)"], []),
    ],
)
def test_value_that_the_compiler_forgets_is_warned_of(source, lines: list[str], found: list[str]) -> None:
    warnings = forgotten_values(compile_pipeline(source(*lines)))
    assert {each.partition("hand ")[2].partition(" to the group")[0] for each in warnings} == set(found)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["see(u={'a': ['$$']})"], ["see: the input 'u'"]),
        (["ask()", "train(run_id='r', command=['$$'], env={'A': '$$'})", "fit(seed=1, words=['$$'])"], []),
    ],
)
def test_doubled_dollar_is_warned_of(source, lines: list[str], found: list[str]) -> None:
    assert [each.partition(": '$$'")[0] for each in doubled_dollars(compile_pipeline(source(*lines)))] == found


def test_doubled_dollar_of_a_default_is_warned_of(source) -> None:
    file = Path(source("see(u={'a': 1})"))
    file.write_text(file.read_text("utf-8").replace('s: str = "x"', 's: str = "$$"'), "utf-8")
    (warning,) = doubled_dollars(compile_pipeline(str(file)))
    assert warning.startswith("the default of the parameter 's': '$$' in it arrives as '$' on a server")


@pytest.mark.parametrize(
    ("lines", "default", "said"),
    [
        (["see(u={}, n=2**53)"], "0", "the input 'n' of see: Kubeflow Pipelines keeps numbers as doubles"),
        (["see(u={}, n=-2**60 - 1)"], "0", "the input 'n' of see"),
        (["see(u={}, n=large)"], "2**60 + 1", "the default of the parameter 'large'"),
        (["with dsl.ParallelFor([1, 2**60 + 1]) as i:", "    see(u={}, n=i)"], "0", "an item of the loop for-loop-2"),
        (["train(run_id='r', num_nodes=2**60 + 1)"], "0", "train(): num_nodes=1152921504606846977: Kubeflow Pipelines"),
    ],
)
def test_large_integer_is_refused_when_compiled(source, lines: list[str], default: str, said: str) -> None:
    with pytest.raises(BadPipeline) as raised:
        compile_pipeline(source(*lines, default=default))
    assert said in str(raised.value)


def test_integer_below_the_limit_is_compiled(source) -> None:
    compile_pipeline(source("see(u={}, n=2**53 - 1)", default="-2**53 + 1"))


def test_defaults_of_integers_are_integers_in_the_text_and_the_list(run: Run, source) -> None:
    file = source("see(u={}, n=n)")
    text = compile_pipeline(file).text
    assert "defaultValue: 3\n" in text
    assert "defaultValue: 1.0\n" in text
    row = next(line for line in run("pipeline", "list", file).stdout.splitlines() if line.split()[1] == "n")
    assert row.split()[2:4] == ["int", "3"]
