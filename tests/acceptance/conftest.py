"""Plays each scene on its stage. `make acceptance` says on which cluster; without that, on one that is started here."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.clusters import ClusterUnderTest, EmbeddedClusterUnderTest, Namespace, Options, given_cluster
from acceptance.means import Means
from acceptance.scene import Scene
from acceptance.stage import Stage
from acceptance.turns import turn
from acceptance.verdicts import Verdicts

RUN = "TRAINWRIGHT_ACCEPTANCE_RUN"
"""The mark of this run, the same in all its processes."""
_OWN_RUN = pytest.StashKey[str]()
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    options = Options.of_environment()
    if options.kubeconfig and not options.image:
        raise pytest.UsageError("say which images the cluster can pull: IMAGE='registry.example.com/ml/{image}:TAG'")
    os.environ[RUN] = config.stash[_OWN_RUN] = secrets.token_hex(3)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was made is removed then as after Ctrl-C
    config.pluginmanager.register(Verdicts(), "verdicts")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what this run has made on a given cluster, in all its processes."""
    options, run = Options.of_environment(), config.stash.get(_OWN_RUN, "")
    if not run or not options.kubeconfig or config.option.collectonly:
        return
    with tempfile.TemporaryDirectory() as folder:
        given_cluster(run, Path(folder), options).remove()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """The cluster that was given, or an embedded one for this process."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    options, folder = Options.of_environment(), tmp_path_factory.mktemp("cluster")
    run = os.environ.setdefault(RUN, secrets.token_hex(3))
    if options.kubeconfig:
        yield given_cluster(run, folder, options)
        return
    embedded = EmbeddedClusterUnderTest.start(run, folder, options)
    try:
        yield embedded
    finally:
        embedded.remove()


@pytest.fixture(scope="session")
def namespace(cluster: ClusterUnderTest) -> Namespace:
    """The namespace of scenes that need none of their own."""
    return cluster.make_namespace()


@pytest.fixture(scope="session")
def means(cluster: ClusterUnderTest, namespace: Namespace) -> Means:
    return Means(cluster, namespace)


@pytest.fixture
def stage(
    scene: Scene, cluster: ClusterUnderTest, namespace: Namespace, means: Means, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """The stage of a scene, if the cluster has the means for it."""
    if reason := means.why_not(scene.needs):
        pytest.skip(reason)
    base = tmp_path_factory.getbasetemp()
    with turn(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base, alone=scene.alone):
        place = cluster.make_namespace(scene.labels) if scene.own_namespace else namespace
        stage = Stage(scene.slug, cluster, place, tmp_path_factory.mktemp(f"scene-{next(_numbers)}"))
        try:
            yield stage
        finally:
            stage.close()
            if scene.own_namespace:
                cluster.remove_namespace(place.name)
