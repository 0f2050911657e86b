"""Programs that read a model's tokenizer, and render its chat template: a program of strangers.

They have a process without credentials and without network access of Hugging Face's libraries, with a limit of memory. Who starts
them adds a limit of time, see `run_in_group`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys

_MAX_MEMORY = 4 * 1024**3
"""Bytes. Tokenizers with the largest vocabularies take one quarter of it."""
_INHERITED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR", "SYSTEMROOT")


def tokenizer_environment() -> dict[str, str]:
    """Return all variables of such a program: none of them is a credential."""
    variables = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return variables | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def limit_tokenizer_process(file_bytes: int) -> None:
    """Limit this process, which writes files of at most so many bytes. To be called before transformers is imported."""
    for limit, most in ((resource.RLIMIT_DATA, _MAX_MEMORY), (resource.RLIMIT_FSIZE, file_bytes)):
        with contextlib.suppress(ValueError):  # a lower limit is in force
            resource.setrlimit(limit, (most, most))
    sys.modules["torch"] = None  # type: ignore[assignment]  # an import of transformers would take two seconds more with it
