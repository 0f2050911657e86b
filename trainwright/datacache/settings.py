"""The settings of a job's data cache, from the variables of Trainer's dataset initializer, and the errors of the cache."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.api import names
from trainwright.api.quantities import parse_quantity

SCHEME = names.CACHE_SCHEME
_URI = re.compile(r"cache://(?P<schema>[^/?#\s]+)/(?P<table>[^/?#\s]+)")
_LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://|/)\S.*")
VARIABLES = (
    "STORAGE_URI",
    "METADATA_LOC",
    "IAM_ROLE",
    "TRAIN_JOB_NAME",
    "CACHE_IMAGE",
    "CLUSTER_SIZE",
    "HEAD_CPU",
    "HEAD_MEM",
    "WORKER_CPU",
    "WORKER_MEM",
    "CACHE_START_SECONDS",
    names.CACHE_OPEN_VARIABLE,
)
"""What the initializer reads; IAM_ROLE has no meaning outside of Amazon's clusters."""


OPEN = "every process of this machine can read the rows of the cache, and end it with large messages"


@dataclass(frozen=True)
class CacheSettings:
    """A cache of `size` pods: a head and workers. Quantities are those of Kubernetes; an empty one reserves nothing."""

    job: str
    schema: str
    table: str
    metadata_loc: str
    image: str
    size: int = 3
    head_cpu: str = ""
    head_mem: str = "1Gi"
    worker_cpu: str = ""
    worker_mem: str = "2Gi"
    start_seconds: int = 600
    """In which the cache must be ready."""
    is_open: bool = False
    """Whether every process of the machine may read the rows, as clients of Trainer's cache do, without a key."""

    @property
    def name(self) -> str:
        """The name of the cache's JobSet."""
        return cache_name(self.job)

    @property
    def service(self) -> str:
        """The name by which readers find the head."""
        return service_name(self.job)


def cache_name(job: str) -> str:
    """Return the name of the JobSet of a TrainJob's cache."""
    return f"{job}-cache"


def service_name(job: str) -> str:
    """Return the name of the Service of that cache, as upstream."""
    return f"{job}-cache-service"


def read_settings(environ: Mapping[str, str]) -> CacheSettings:
    """Read the variables of a dataset initializer. Raises CacheError naming the one that is missing or invalid."""
    uri = environ.get("STORAGE_URI", "")
    if problem := uri_problem(uri):
        raise CacheError(f"STORAGE_URI: {problem}")
    parts = _URI.fullmatch(uri)
    assert parts is not None
    quantities = {"HEAD_CPU": "", "HEAD_MEM": "1Gi", "WORKER_CPU": "", "WORKER_MEM": "2Gi"}
    given = {name: environ.get(name) or default for name, default in quantities.items()}
    for name, text in given.items():
        if text and (problem := quantity_problem(text)):
            raise CacheError(f"{name}: {problem}")
    return CacheSettings(
        job=_required(environ, "TRAIN_JOB_NAME", "set it from the pod's label jobset.sigs.k8s.io/jobset-name"),
        schema=parts["schema"],
        table=parts["table"],
        metadata_loc=_required(environ, "METADATA_LOC", "name the metadata.json of an Iceberg table, or files of Parquet or CSV"),
        image=_required(environ, "CACHE_IMAGE", "name the image of the cache in the runtime's dataset initializer"),
        size=_number(environ, "CLUSTER_SIZE", 3, at_least=2),
        head_cpu=given["HEAD_CPU"],
        head_mem=given["HEAD_MEM"],
        worker_cpu=given["WORKER_CPU"],
        worker_mem=given["WORKER_MEM"],
        start_seconds=_number(environ, "CACHE_START_SECONDS", 600, at_least=1),
        is_open=_is_open(environ),
    )


def uri_problem(uri: str) -> str:
    """Return what is wrong with the URI of a cached table, or an empty string."""
    return "" if _URI.fullmatch(uri) else f"{uri!r} is not the URI of a cached table: cache://SCHEMA/TABLE"


def location_problem(location: str) -> str:
    """Return what is wrong with the location of a table, or an empty string. Pods have no working folder in common."""
    if _LOCATION.fullmatch(location):
        return ""
    return f"{location!r} is neither a URI, such as s3://lake/table/metadata/1.metadata.json, nor an absolute path"


def quantity_problem(text: str) -> str:
    """Return what is wrong with a quantity, which must be positive, or an empty string."""
    try:
        quantity = parse_quantity(text)
    except ValueError as error:
        return str(error)
    return "" if quantity > parse_quantity(0) else f"{text!r} must be greater than zero"


def _required(environ: Mapping[str, str], name: str, advice: str) -> str:
    if not (value := environ.get(name, "")):
        raise CacheError(f"{name} is not set, which a data cache requires; {advice}")
    return value


def _is_open(environ: Mapping[str, str]) -> bool:
    text = environ.get(names.CACHE_OPEN_VARIABLE) or "false"
    if text not in ("true", "false"):
        raise CacheError(f"{names.CACHE_OPEN_VARIABLE}={text} must be true or false")
    return text == "true"


def _number(environ: Mapping[str, str], name: str, default: int, *, at_least: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or int(text) < at_least:
        raise CacheError(f"{name}={text} must be a number of at least {at_least}")
    return int(text)


class CacheError(Exception):
    """The cache cannot be made or read. The message names the table or the cache, and what to do."""


class CacheLost(CacheError):
    """A cache does not answer any more, or has returned other rows than it said."""
