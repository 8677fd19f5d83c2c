#!/usr/bin/env bash
# Builds the programs that scripts/gpu_suite.sh runs on a machine with a GPU, and collects libraries it may lack.
# Usage: scripts/gpu_prebuild.sh [--quick] DIR [ARCHITECTURES]
#   --quick        compiles the code for the processor as the preset emulated does, so that ccache has most of it from
#                  there, and keeps the PTX of each kernel in build/gpu-quick/ptx for scripts/ptx_tests.py. For a check
#                  that all of it builds, not for measurements
#   DIR            gets bin/ and lib/; DIR.tar.xz is the same in one file, at most 24 MB, or 40 MB together with the
#                  tracked sources. Pass either to scripts/gpu_suite.sh --prebuilt
#   ARCHITECTURES  as QTRAIN_CUDA_ARCHS (default: 90a-real, an H100 or H200)
# Needs nvcc and the packages of scripts/install_deps.sh, but no GPU. The other machine's C library must not be older.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=build/gpu
ptx="$ROOT/build/gpu-quick/ptx"
flags=(-DCMAKE_CUDA_FLAGS=-Xptxas=-v)
if [ "${1:-}" = --quick ]; then
  build=build/gpu-quick
  flags=('-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG'  # as in CMakePresets.json
    "-DCMAKE_CUDA_FLAGS=-Xptxas=-v --keep --keep-dir $ptx")
  rm -rf "$ptx"
  mkdir -p "$ptx"
  shift
fi
case "${1:-}" in
  "" | -*) sed -n '2,10s/^# //p' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
mkdir -p "$1"
target="$(cd "$1" && pwd)"
architectures="${2:-90a-real}"
max_bundle=$((24 * 1000 * 1000))
max_with_sources=$((40 * 1000 * 1000))
jobs="${JOBS:-$(nproc)}"

choose_compiler
# Programs look for libraries in ../lib, as do the libraries themselves (hence DT_RPATH instead of DT_RUNPATH).
run cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQTRAIN_CUDA=native "-DQTRAIN_CUDA_ARCHS=$architectures" \
  "${flags[@]}" \
  -DQTRAIN_OPS_LIBRARY=ON -DQTRAIN_UNITY=ON '-DCMAKE_BUILD_RPATH=$ORIGIN/../lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
  -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags
# The compiler's report of each kernel's registers and spills goes into the log only.
run cmake --build "$build" -j "$jobs" --target qtrain test_cuda test_e2e_cuda qtrain_ops |
  tee "$build/build.log" | grep --line-buffered -Ev '^ptxas info|bytes stack frame|^$'
# The compiler keeps more than that, 12 MB for each source.
[ ! -d "$ptx" ] || find "$ptx" -type f ! -name '*.ptx' -delete

rm -rf "${target:?}/bin" "${target:?}/lib"
mkdir -p "$target/bin" "$target/lib"
for program in qtrain test_cuda test_e2e_cuda; do strip -o "$target/bin/$program" "$build/bin/$program"; done
strip -o "$target/lib/libqtrain_ops.so" "$build/lib/libqtrain_ops.so"
git rev-parse HEAD >"$target/commit" 2>/dev/null || echo unknown >"$target/commit"

# Copy all libraries except the C and C++ run-time libraries, which every machine has and which must match its loader.
own='^(linux-vdso|ld-linux.*|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so'
ldd "$build/bin/qtrain" "$build/lib/libqtrain_ops.so" "$build/bin/test_cuda" "$build/bin/test_e2e_cuda" |
  awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
  while read -r name path; do
    if [[ ! "$name" =~ $own ]]; then cp -L "$path" "$target/lib/$name"; fi
  done

bundle="$target.tar.xz"
tar -C "$target" -cf - bin commit lib | xz -6 -T 0 >"$bundle"
packed="$(stat -c %s "$bundle")"
sources="$(git ls-files -z 2>/dev/null | xargs -0 stat -c %s | awk '{ sum += $1 } END { print sum + 0 }')"
megabytes() { awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'; }
say "$target: $(megabytes "$(du -sb "$target" | cut -f 1)"), $(find "$target/lib" -type f | wc -l) libraries"
say "$bundle: $(megabytes "$packed"); with the tracked sources, $(megabytes $((packed + sources)))"
[ "$packed" -le "$max_bundle" ] || die "$bundle is larger than $(megabytes $max_bundle)"
[ $((packed + sources)) -le "$max_with_sources" ] ||
  die "the bundle and the tracked sources are larger than $(megabytes $max_with_sources)"
