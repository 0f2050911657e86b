#!/usr/bin/env bash
# Builds images of Trainwright with docker, podman or buildah; the tag is the version of the package.
#   deploy/images/build.sh [--base IMAGE] [--registry PREFIX] [--builder docker|podman|buildah] [--push] [--argument NAME=VALUE]... [--option WORD]... [IMAGE]...
# IMAGE: launcher, trainer, controller; all three by default. PREFIX: such as registry.example.com/ml, which gives
# registry.example.com/ml/launcher:VERSION. --argument sets an ARG of the Dockerfile, --option is passed to the builder.
# A trainer without CUDA, for machines without GPUs: --argument TORCH_INDEX=https://download.pytorch.org/whl/cpu trainer
set -euo pipefail
cd "$(dirname "$0")/../.."

registry=ghcr.io/trainwright
builder=
push=
options=()
images=()
while [ $# -gt 0 ]; do
  case $1 in
    --base) options+=(--build-arg "BASE=$2"); shift ;;
    --registry) registry=${2%/}; shift ;;
    --builder) builder=$2; shift ;;
    --argument) options+=(--build-arg "$2"); shift ;;
    --option) options+=("$2"); shift ;;
    --push) push=yes ;;
    launcher | trainer | controller) images+=("$1") ;;
    *) echo "$0: unknown argument: $1" >&2; exit 2 ;;
  esac
  shift
done
if [ -z "$builder" ]; then
  # One that is installed may have no daemon, or no right to it.
  for builder in docker podman buildah none; do
    [ $builder != none ] || { echo "$0: none of docker, podman and buildah is installed and answers \`info\`" >&2; exit 1; }
    if command -v $builder > /dev/null && $builder info > /dev/null 2>&1; then break; fi
  done
fi

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' trainwright/__init__.py)
for image in "${images[@]:-launcher trainer controller}"; do
  for name in $image; do
    echo "building $registry/$name:$version"
    "$builder" build -f deploy/images/Dockerfile --build-arg "IMAGE=$name" --build-arg "VERSION=$version" \
      ${options[@]+"${options[@]}"} -t "$registry/$name:$version" .
    [ -z "$push" ] || "$builder" push "$registry/$name:$version"
  done
done
