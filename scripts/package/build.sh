#!/usr/bin/env bash
# Builds what users install, in build/package/out: a wheel, a tarball and a Debian package of a program that needs only
# glibc. Works on x86-64 Debian and Ubuntu; it needs cmake, ninja, pkg-config, make, perl, python3, dpkg, the machine's cc,
# and network access the first time.
# Usage: scripts/package/build.sh [cpu|cuda]
#   cpu       the CPU backend, for glibc 2.28 and later
#   cuda      both backends, for glibc 2.35 and later; needs a machine with nvcc 13 and glibc 2.36
#   JOBS=2    number of build processes
#   ARCHS=all GPU architectures of a cuda build, as QTRAIN_CUDA_ARCHS
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
package_options 2,9 "$@"
version="$(sed -nE 's/^project\(qtrain VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)"
name="qtrain-$version-linux-x86_64$SUFFIX"
stage="$WORK/stage/$name"

heading "Libraries"
run scripts/package/third_party.sh "$KIND"
heading "Program"
options=()
[ "$KIND" = cpu ] || options+=("-DQTRAIN_CUDA_ARCHS=${ARCHS:-all}")
configure "$PRESET" ${options[@]+"${options[@]}"}
run cmake --build --preset "$PRESET" -j "$JOBS"
rm -rf "$WORK/stage"
run cmake --install "build/$PRESET" --prefix "$stage"
run scripts/package/check_symbols.sh "$stage/bin/qtrain" "$GLIBC"

heading "Tarball, wheel and Debian package"
mkdir -p "$OUT"
deb="$OUT/${name/linux-x86_64/amd64}.deb"
rm -f "$deb" "$OUT/$name.tar.gz" "$OUT"/qtrain-*manylinux_"${GLIBC/./_}"_x86_64.whl
# The libraries that compilers add to a program.
runtimes=("zig=$ZIG")
[ "$KIND" = cpu ] || runtimes=("gcc=$(g++ -dumpfullversion)" "cuda=${CUDART%.*}")
sbom="$stage/share/doc/qtrain/qtrain.cdx.json"
python3 scripts/package/make_sbom.py "$version" "${runtimes[@]}" >"$sbom"
cp -r "$LICENSES" "$stage/share/doc/qtrain/third_party"
run tar -C "$WORK/stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -I 'gzip -9n' -cf "$OUT/$name.tar.gz" "$name"
run python3 scripts/package/make_wheel.py --program "$stage/bin/qtrain" --version "$version" --glibc "$GLIBC" --kind "$KIND" \
  --licenses "$LICENSES" --sbom "$sbom" --output "$OUT"
run python3 scripts/package/make_deb.py --stage "$stage" --version "$version" --glibc "$GLIBC" --licenses "$LICENSES" \
  --sbom "$sbom" --time "$(git log -1 --format=%ct)" --output "$deb"
python_tool "auditwheel==$AUDITWHEEL"
wheel="$(echo "$OUT"/qtrain-*manylinux_"${GLIBC/./_}"_x86_64.whl)"
run "$VENV/bin/python" -m auditwheel show "$wheel" | tee "$WORK/logs/auditwheel.log"
fits="$(tr '\n' ' ' <"$WORK/logs/auditwheel.log" | grep -oE '"manylinux_2_[0-9]+_x86_64"' | head -n 1 | grep -oE '2_[0-9]+')"
[ "$(printf '%s\n' "${fits/_/.}" "$GLIBC" | sort -V | tail -n 1)" = "$GLIBC" ] || die "auditwheel accepts the wheel only for manylinux_$fits"
if command -v lintian >/dev/null; then run lintian --allow-root --fail-on error,warning "$deb"; fi
(cd "$OUT" && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS)
ls -l "$OUT"
