#!/usr/bin/env bash
# Install Trainwright from this checkout into .venv, with the given extras: deploy/laptop/install.sh quickstart,dev
# Run it in the root of the checkout. The Makefile skips it if nothing has changed.
set -euo pipefail

extras=$1
python=${PYTHON:-python3}
torch=2.13.0
cuda_build_gib=6
uv=0.13.9

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Trainwright requires Python 3.11 or newer, but found $("$python" --version). To use another: make PYTHON=python3.12" >&2
    exit 1
}
if [ ! -x .venv/bin/python ]; then
    echo "creating .venv with $("$python" --version)"
    "$python" -m venv .venv
fi
[ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$uv"

# uv does not read pip's configuration: pass on the relevant variables.
links=${UV_FIND_LINKS:-${PIP_FIND_LINKS:-}}
if [ -n "$links" ] && [ -d "$links" ]; then export UV_FIND_LINKS=$links; else unset UV_FIND_LINKS; fi
[ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}
[ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE=${SSL_CERT_FILE:-$PIP_CERT}
export UV_COMPILE_BYTECODE=1 VIRTUAL_ENV=$PWD/.venv
unset PYTHONDONTWRITEBYTECODE

[ -t 2 ] && quiet=() || quiet=(--quiet)  # a terminal shows uv's progress
# A build that uv has kept is made again: it may be from before others' code in the page was removed, or could be fetched.
install() { .venv/bin/uv pip install "${quiet[@]}" "$@" --reinstall-package trainwright --editable ".[$extras]"; }

echo "installing trainwright[$extras]: half a minute on two cores after the downloads, which happen once"
if [ -n "${UV_FIND_LINKS:-}" ] && compgen -G "$UV_FIND_LINKS/torch-$torch*.whl" >/dev/null; then
    install
elif [ "$(uname -s)" = Linux ] && [[ ",$extras," == *quickstart* ]]; then
    install --torch-backend=cpu || {
        free=$(($(df -Pk . | awk 'NR==2 {print $4}') / 1024 / 1024))
        echo "PyTorch's CPU build is not reachable; the CUDA build needs about $cuda_build_gib GiB, $free GiB are free" >&2
        [ "$free" -gt "$cuda_build_gib" ] || exit 1
        install
    }
else
    install
fi
rm -rf trainwright.egg-info  # left by the editable install: whoever lists entry points would find each of them twice
[ -d trainwright/ui/static/vendor ] || echo "npm's registry is not reachable: the page will say what is missing" >&2
.venv/bin/python -m compileall -q trainwright components operators pipelines dags quickstart
