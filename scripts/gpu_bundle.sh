#!/usr/bin/env bash
# Packs the built program with the shared libraries it needs and the GPU check into one archive of under 60 MB, for a
# machine that has a GPU and the CUDA libraries but not this project's packages: scripts/gpu_bundle.sh [ARCHIVE]
# There: tar xf ARCHIVE && gpu-bundle/scripts/gpu_check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
archive="${1:-gpu-bundle.tar.xz}"
[[ -x build/skrull ]] || { echo "gpu_bundle: build/skrull is not there; run scripts/build.sh -DSKRULL_CUDA=ON" >&2; exit 1; }

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
bundle="$folder/gpu-bundle"
mkdir -p "$bundle"/{bin,lib,scripts}
cp build/skrull "$bundle/bin/"
strip --strip-debug "$bundle/bin/skrull"
cp scripts/gpu_check.sh "$bundle/scripts/"

# mpirun finds its own parts by OPAL_PREFIX, in the layout that the distribution gave them.
mpi_library="$(ldd build/skrull | awk '$1 ~ /^libmpi\.so/ {print $3}')"
mpi_home="$(dirname "$(readlink -f "$(command -v mpirun)")")"
cp -L "$(command -v mpirun)" "$bundle/bin/mpirun"
for helper in orted prted prterun; do
  if command -v "$helper" >/dev/null; then cp -L "$(command -v "$helper")" "$bundle/bin/"; fi
done
plugins="$(dirname "$(readlink -f "$mpi_library")")"
for parts in "$plugins/openmpi" "$(dirname "$plugins")/openmpi" "$plugins/openmpi/lib/openmpi" "$plugins/openmpi3" "$plugins/pmix2/lib/pmix"; do
  if [[ -d $parts ]]; then mkdir -p "$bundle/plugins"; cp -rL "$parts" "$bundle/plugins/" 2>/dev/null || true; fi
done
if [[ -d /usr/share/openmpi ]]; then cp -rL /usr/share/openmpi "$bundle/openmpi-share"; fi

# The C library belongs to the system, the driver and the large CUDA libraries to the machine with the GPU.
left_out='^(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libcuda|libcublas|libcublasLt|libcudnn.*|libnccl|linux-vdso)\.so'
libraries_of() { ldd "$1" 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $3}'; }
{
  libraries_of build/skrull
  libraries_of "$bundle/bin/mpirun"
  while read -r part; do libraries_of "$part"; done < <(find "$bundle" -name '*.so*' -type f)
} | sort -u | while read -r library; do
  [[ "$(basename "$library")" =~ $left_out ]] || cp -L "$library" "$bundle/lib/"
done

cat >"$bundle/environment.sh" <<'ENVIRONMENT'
# Sourced by gpu_check.sh: where the bundle's programs find their libraries.
bundle="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export PATH="$bundle/bin:$PATH"
export LD_LIBRARY_PATH="$bundle/lib:${LD_LIBRARY_PATH:-}:/usr/local/cuda/lib64:/usr/local/cuda/lib"
export OPAL_PREFIX="$bundle" OPAL_PKGDATADIR="$bundle/openmpi-share"
for plugins in "$bundle"/plugins/openmpi/lib/openmpi3 "$bundle"/plugins/openmpi/lib/openmpi "$bundle"/plugins/openmpi3 "$bundle"/plugins/openmpi; do
  if compgen -G "$plugins/mca_*.so" >/dev/null; then export OMPI_MCA_mca_base_component_path="$plugins"; break; fi
done
ENVIRONMENT

tar -C "$folder" -cJf "$archive" gpu-bundle
bytes="$(stat -c %s "$archive")"
printf 'gpu_bundle: %s, %.1f MB\n' "$archive" "$(awk -v bytes="$bytes" 'BEGIN {print bytes / 1e6}')" >&2
if ((bytes >= 60000000)); then
  echo "gpu_bundle: more than the 60 MB it should stay below" >&2
  exit 1
fi
