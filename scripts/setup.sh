#!/usr/bin/env bash
# Installs what Skrull needs from the distribution (Debian 12+, Ubuntu 24.04+). With --ci also the linters, clang, what
# tests/cluster needs, and pip for scripts/cudnn_frontend.sh. Does nothing when everything is there. Without root or sudo it
# prints the one command to type.
set -euo pipefail

# libdnnl-dev's CMake package asks for OpenCL, which the Debian package only recommends.
packages=(g++ cmake ninja-build pkg-config libdnnl-dev ocl-icd-opencl-dev libopenmpi-dev openmpi-bin nlohmann-json3-dev
  libspdlog-dev libcli11-dev libpcre2-dev libutf8proc-dev libxxhash-dev catch2)
if [[ "${1:-}" == --ci ]]; then
  packages+=(clang clang-format clang-tidy libomp-dev git slurm-wlm munge iproute2)
  python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
fi

is_installed() { [[ "$(dpkg-query -W -f='${Status}' "$1" 2>/dev/null)" == "install ok installed" ]]; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is not a Debian or Ubuntu system; install what third_party/README.md lists, then run scripts/build.sh" >&2
  exit 0
fi
missing=()
for package in "${packages[@]}"; do is_installed "$package" || missing+=("$package"); done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if [[ $EUID -eq 0 ]]; then
  as_root=()
elif sudo -n true 2>/dev/null || { [[ -t 0 ]] && command -v sudo >/dev/null; }; then
  as_root=(sudo)
else
  echo "setup: packages are missing and installing them needs root. Type:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
  exit 1
fi
echo "setup: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
