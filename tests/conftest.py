"""What all tests share: plugins, the order of collected tests, homes, and hypothesis' profiles."""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import tiers
import typer.testing
from _pytest.unittest import UnitTestCase
from hypothesis import HealthCheck, settings
from servers.s3_server import s3, s3_folder, s3_server  # noqa: F401  fixtures
from support.tiny_model import tiny_model  # noqa: F401  fixture

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background by a shell; the processes of tests inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["support.hung_tests", "support.run_report"]
if importlib.util.find_spec("xdist"):  # missing where tests run with other versions of a client
    pytest_plugins.append("support.crashed_workers")

# Environments of real tools are kept between runs, in a folder that git ignores; those of the user are left alone.
os.environ.setdefault("TRAINWRIGHT_TOOLS", str(Path(__file__).parents[1] / ".clients" / "tools"))

# Test processes share the cores: with more threads than one, torch and numpy spend most of their time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Typer builds the whole tree of commands at each invocation, which takes longer than most commands do.
typer.testing._get_command = functools.cache(typer.testing._get_command)

# Rewriting the asserts of all tests takes twice as long as collecting them. The Makefile does not pass on this setting either.
sys.dont_write_bytecode = False

_numbers = itertools.count()

# The same examples every time, so that a run says something about the change at hand; `make fuzz` looks for new ones,
# TRAINWRIGHT_FUZZ_EXAMPLES of them in each test.
settings.register_profile(
    "default", deadline=None, max_examples=30, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fuzz",
    deadline=None,
    max_examples=int(os.environ.get("TRAINWRIGHT_FUZZ_EXAMPLES", "5000")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


HEAVY = frozenset({"airflow", "kfp", "mlflow", "ray", "torch", "transformers"})
"""Packages that no module of tests may import when it is collected: that takes seconds, in every test process."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, which would go through all tests again and again: they live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail modules of tests that import a heavy package before one of their tests needs it."""
    before = HEAVY & sys.modules.keys()
    report = yield
    if imported := (HEAVY & sys.modules.keys()) - before:
        report.outcome = "failed"
        report.longrepr = (
            f"{collector.nodeid} imports {', '.join(sorted(imported))} when it is collected, by itself or by what it imports: "
            "import it in tests and fixtures, or see tests/support/on_first_use.py"
        )
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    """Refuse tests that tests/tiers.py would never run."""
    made = yield
    for item in made if isinstance(made, list) else [made] if isinstance(made, UnitTestCase) else []:
        parts = [mark.kwargs.get("part", "") for mark in item.iter_markers("wide")]
        if problem := tiers.never_runs({mark.name for mark in item.iter_markers()}, item.path, parts):
            raise pytest.Collector.CollectError(f"{item.nodeid}: {problem}")
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of several: modules whose tests may take longest come first, so that none is left for the end."""
    if not hasattr(config, "workerinput"):
        return
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        modules.setdefault(item.path, []).append(item)

    def duration(tests: list[pytest.Item]) -> tuple[float, int]:
        """The longest timeout that a test declares, then the number of tests. The modules of a group take minutes together."""
        timeouts = [mark.args[0] for test in tests if (mark := test.get_closest_marker("timeout")) is not None]
        return max(timeouts, default=300 if tiers.group_of(tests[0].nodeid) else 0), len(tests)

    items[:] = [test for tests in sorted(modules.values(), key=duration, reverse=True) for test in tests]


@pytest.fixture(scope="session", autouse=True)
def _pods_see_the_files_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Pods have a /tmp of their own, so tests that watch them through files share the folder of all tests with them."""
    os.environ["TRAINWRIGHT_SHARED_FOLDERS"] = str(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session", autouse=True)
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep Airflow, git, kubectl and matplotlib away from the files that they have in the home of the person who runs the tests."""
    folder = tmp_path_factory.getbasetemp()
    (folder / "gitconfig").write_text("[safe]\n\tdirectory = *\n", "utf-8")
    os.environ |= {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "KUBECACHEDIR": str(folder / "kubectl"),
        "KUBERC": "off",
        "MPLCONFIGDIR": str(tiers.ROOT / ".clients" / "matplotlib"),  # fonts are listed once, which takes seconds
    }
    os.environ.pop("AIRFLOW_CONFIG", None)


@pytest.fixture(autouse=True)
def _no_cluster_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests away from the cluster and the home of the person who runs them: each gets the path of a new home.

    Without `tmp_path`, which takes the longer the more tests have had one.
    """
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path_factory.getbasetemp() / "homes" / str(next(_numbers))))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A path for a workspace, where nothing is yet."""
    return tmp_path / "workspace"
