"""Tests of what runs in a cache's pods need pyarrow, which an installation without torch does not have."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyarrow") else ["running_cache.py", "test_flight_cache.py", "test_cache_access.py"]
