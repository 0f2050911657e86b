"""The variables that a tool's process gets: what every program needs and what this tool asks for, but no other secret of the step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from trainwright.text.foreign_texts import without_user

_COMMON = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NVIDIA_*", "LD_LIBRARY_PATH", "TRAINWRIGHT_UMASK"),
)
_SECRET = re.compile(r"(?i)secret|token|password|passwd|credential|_key$")
_ADDRESS = re.compile(r"/|[a-z0-9+]+://")
"""Of a file with a secret, or of a server; a password in it is looked for below."""
_USER = re.compile(r"://([^/\s@]+)@")
_SHORTEST = 6
"""Characters of a value that is looked for in texts; shorter ones are words."""


def variables_for(environ: Mapping[str, str], patterns: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that a program gets: the common ones, and those whose names match a pattern, as `AWS_*`."""
    wanted = (*_COMMON, *patterns)
    return {name: value for name, value in environ.items() if any(fnmatchcase(name, pattern) for pattern in wanted)}


class Redaction:
    """Removes from texts the secrets that are among a program's variables, and the users and passwords of addresses."""

    def __init__(self, variables: Mapping[str, str]):
        found = {value for name, value in variables.items() if _SECRET.search(name) and not _ADDRESS.match(value)}
        for value in variables.values():
            for user in _USER.findall(value):
                found |= {user, user.partition(":")[2]}
        self._secrets = sorted((value for value in found if len(value) >= _SHORTEST), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return without_user(text)
