#!/usr/bin/env bash
# Builds what users install: a wheel and a tarball of a program that needs nothing but glibc 2.28 (CPU backend alone), in
# build/package/out. Works on x86-64 Debian and Ubuntu; it needs cmake, ninja, pkg-config, make, perl, python3 and the cc
# of the machine, and the network the first time.
# Usage: scripts/package/build.sh
#   JOBS=2    processes of a build
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) die "unknown option '$1' (see --help)" ;;
esac
OUT="$WORK/out"
version="$(sed -nE 's/^project\(qtrain VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)"
name="qtrain-$version-linux-x86_64"
stage="$WORK/stage/$name"

heading "Libraries"
run scripts/package/third_party.sh
heading "Program"
configure portable
run cmake --build --preset portable -j "$JOBS"
rm -rf "$WORK/stage"
run cmake --install build/portable --prefix "$stage"
run scripts/package/check_symbols.sh "$stage/bin/qtrain"

heading "Tarball and wheel"
mkdir -p "$OUT"
rm -f "$OUT"/*
sbom="$stage/share/doc/qtrain/qtrain.cdx.json"
python3 scripts/package/make_sbom.py "$version" "$ZIG" >"$sbom"
cp -r "$LICENSES" "$stage/share/doc/qtrain/third_party"
run tar -C "$WORK/stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -I 'gzip -9n' -cf "$OUT/$name.tar.gz" "$name"
run python3 scripts/package/make_wheel.py --program "$stage/bin/qtrain" --version "$version" --glibc "$GLIBC" \
  --licenses "$LICENSES" --sbom "$sbom" --output "$OUT"
python_tool "auditwheel==$AUDITWHEEL"
run "$VENV/bin/python" -m auditwheel show "$OUT"/*.whl | tee "$WORK/logs/auditwheel.log"
tr '\n' ' ' <"$WORK/logs/auditwheel.log" | grep -qE "platform tag: +\"manylinux_${GLIBC/./_}_x86_64\"|\"manylinux_2_(5|12|17|24|26|27)_x86_64\"" ||
  die "auditwheel does not find it fit for manylinux_${GLIBC/./_}"
(cd "$OUT" && sha256sum -- * >SHA256SUMS)
ls -l "$OUT"
