#!/usr/bin/env bash
# Fetches the headers of cudnn-frontend, which NVIDIA's Python package carries, into build/cudnn_frontend, where the build
# finds them: scripts/cudnn_frontend.sh [BUILD FOLDER]. Needs pip; the program itself needs no Python.
set -euo pipefail
cd "$(dirname "$0")/.."
version=1.32.0
folder="${1:-build}/cudnn_frontend"

is_there() { grep -qs "CUDNN_FRONTEND_MAJOR_VERSION" "$folder/include/cudnn_frontend_version.h"; }
is_there && exit 0
wheel="$(mktemp -d)"
trap 'rm -rf "$wheel"' EXIT
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$wheel" "nvidia-cudnn-frontend==$version" \
  >"$wheel/log" 2>&1; then
  echo "cudnn_frontend: nvidia-cudnn-frontend $version could not be fetched: $(grep . "$wheel/log" | tail -n 1)" >&2
  exit 1
fi
python3 -m zipfile -e "$wheel"/*.whl "$wheel/unpacked"
mkdir -p "$folder"
rm -rf "$folder/include"
mv "$wheel/unpacked/include" "$folder/"
is_there || { echo "cudnn_frontend: the package $version has no headers in its folder include" >&2; exit 1; }
