"""No module loads a stranger's model, data or archive in a way that may run code: every call is looked for in the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_FOLDERS = ("trainwright", "operators", "components", "pipelines", "dags", "quickstart")
_UNSAFE = {
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads", "dill.load", "dill.loads"),
    *("joblib.load", "torch.load", "yaml.unsafe_load", "yaml.full_load", "marshal.loads", "shelve.open"),
    *("jinja2.Template", "jinja2.Environment", "evaluate.load", "numpy.load", "np.load"),
}
"""Nothing here needs one of these."""
_TRUSTED = {"from_pretrained", "load_dataset", "from_config", "HFLM"}
"""Calls that run the code of a model or a dataset if they are told to; without the argument, transformers asks on the terminal."""
_TAKES_NO_TRUST = {"PeftModel.from_pretrained", "GenerationConfig.from_pretrained"}


def unsafe(source: str) -> Iterator[str]:
    """Yield the line and the name of each call that may run code of others."""
    if not any(name in source for name in _UNSAFE | _TRUSTED):  # parsing all modules takes seconds
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in _UNSAFE:
            yield f"{node.lineno}: {name}"
        if name.rpartition(".")[2] in _TRUSTED and name not in _TAKES_NO_TRUST:
            given = {each.arg: ast.unparse(each.value) for each in node.keywords}
            if given.get("trust_remote_code") != "False":
                yield f"{node.lineno}: {name} without trust_remote_code=False"


def modules() -> list[Path]:
    return [path for folder in _FOLDERS for path in sorted((_ROOT / folder).rglob("*.py")) if not path.is_symlink()]


@pytest.mark.medium
def test_modules_load_nothing_that_may_run_code() -> None:
    found = {f"{path.relative_to(_ROOT)}:{line}" for path in modules() for line in unsafe(path.read_text("utf-8"))}
    assert not found


def test_modules_never_set_trust_remote_code() -> None:
    texts = {path: path.read_text("utf-8") for path in modules()}
    assert not [path for path, text in texts.items() if "trust_remote_code=True" in text or "trust-remote-code" in text]


@pytest.mark.parametrize(
    "source",
    [
        "torch.load(path, weights_only=True)",
        "AutoTokenizer.from_pretrained(folder)",
        "AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=trust)",
        "datasets.load_dataset(name)",
        "pickle.loads(data)",
    ],
)
def test_search_finds_calls_that_may_run_code(source: str) -> None:
    assert list(unsafe(source))
