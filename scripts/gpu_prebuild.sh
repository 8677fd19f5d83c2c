#!/usr/bin/env bash
# Builds what scripts/gpu_suite.sh runs on a machine with a GPU, and the libraries that may be missing there.
# Usage: scripts/gpu_prebuild.sh DIR [ARCHITECTURES]
#   DIR            gets bin/ and lib/, at most 54 MB; give it to scripts/gpu_suite.sh --prebuilt DIR
#   ARCHITECTURES  as QTRAIN_CUDA_ARCHS (default: 90a-real, an H100 or H200)
# Needs nvcc and the packages of scripts/install_deps.sh, but no GPU. The other machine needs a C library at least as new.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case "${1:-}" in
  "" | -*) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
mkdir -p "$1"
target="$(cd "$1" && pwd)"
architectures="${2:-90a-real}"
build=build/gpu
most_megabytes=54
jobs="${JOBS:-$(nproc)}"

choose_compiler
# The libraries lie beside the programs, also those that only libraries need (hence the old form of the path).
run cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQTRAIN_CUDA=native "-DQTRAIN_CUDA_ARCHS=$architectures" \
  -DQTRAIN_OPS_LIBRARY=ON '-DCMAKE_BUILD_RPATH=$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
  -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags
run cmake --build "$build" -j "$jobs" --target qtrain test_cuda test_e2e_cuda qtrain_ops

rm -rf "${target:?}/bin" "${target:?}/lib"
mkdir -p "$target/bin" "$target/lib"
for program in qtrain test_cuda test_e2e_cuda; do strip -o "$target/bin/$program" "$build/bin/$program"; done
strip -o "$target/lib/libqtrain_ops.so" "$build/lib/libqtrain_ops.so"
git rev-parse HEAD >"$target/commit" 2>/dev/null || echo unknown >"$target/commit"

# Everything but the C and C++ run-time libraries, which every machine has and which must fit its loader.
own='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so'
ldd "$build/bin/qtrain" "$build/lib/libqtrain_ops.so" "$build/bin/test_cuda" "$build/bin/test_e2e_cuda" |
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
  while read -r name path; do
    if [[ ! "$name" =~ $own ]]; then cp -L "$path" "$target/lib/$name"; fi
  done

size="$(du -sm "$target" | cut -f 1)"
say "$target: $size MB, $(find "$target/lib" -type f | wc -l) libraries"
[ "$size" -le "$most_megabytes" ] || die "$size MB are more than $most_megabytes"
