#!/usr/bin/env bash
# Builds every library that a package links, as static archives in build/package/KIND/prefix, from the Debian 12 source
# packages in sources.txt.
# Libraries that are already built are kept; remove build/package to rebuild them.
# Usage: scripts/package/third_party.sh [cpu|cuda]
#   JOBS=2              number of processes for builds
#   DEBIAN_MIRROR=URL   a mirror of Debian 12; default: the machine's own
# Archives that are already in build/package/sources are not downloaded; downloading needs Debian (apt-get source).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
package_options 2,8 "$@"
mkdir -p "$WORK" "$PREFIX" "$TOOLS" "$SOURCES" "$LICENSES" "$WORK/logs"

# Makes wrappers for compiler and archiver under the names that the builds use.
make_tools() {
  "tools_of_$KIND"
  chmod +x "$TOOLS"/*
}
tools_of_cpu() {
  local zig name
  python_tool "ziglang==$ZIG"
  zig="$("$VENV/bin/python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')"
  for name in cc c++; do
    cat >"$TOOLS/$name" <<END
#!/bin/sh
for word; do # zig spells CPU names with underscores
  shift
  case "\$word" in -march=x86-64-v*) word="-march=x86_64_v\${word##*-v}" ;; esac
  set -- "\$@" "\$word"
done
exec "$zig" $name -target x86_64-linux-gnu.$GLIBC -fno-sanitize=all -g0 "\$@"
END
  done
  for name in ar ranlib; do printf '#!/bin/sh\nexec "%s" %s "$@"\n' "$zig" "$name" >"$TOOLS/$name"; done
  cp "$(dirname "$zig")/LICENSE" "$LICENSES/zig.txt"
  cp "$(dirname "$zig")/lib/libcxx/LICENSE.TXT" "$LICENSES/llvm.txt" # libc++, libc++abi, libunwind, compiler-rt
}
tools_of_cuda() {
  local name
  choose_compiler
  printf '#!/bin/sh\nexec %s "$@"\n' "$CXX" >"$TOOLS/c++"
  printf '#!/bin/sh\nexec %s "$@"\n' "${CXX/g++/gcc}" >"$TOOLS/cc"
  for name in ar ranlib; do printf '#!/bin/sh\nexec %s "$@"\n' "$name" >"$TOOLS/$name"; done
  cp "/usr/share/doc/gcc-$(g++ -dumpversion)-base/copyright" "$LICENSES/gcc.txt"
  python_tool "nvidia-cuda-runtime==$CUDART"
  cp "$("$VENV/bin/python" -c 'from importlib.metadata import files
print(next(f.locate() for f in files("nvidia-cuda-runtime") if f.name == "License.txt"))')" "$LICENSES/cuda.txt"
}

# apt gets its own configuration, so that it does not touch the machine's.
fetch() {
  local wanted=() mirror name version file sum spdx license patches patches_sum state="$PACKAGES/apt"
  while IFS='|' read -r name version file sum spdx license patches patches_sum; do
    [ -s "$SOURCES/$file" ] && [ -s "$SOURCES/${patches:-$file}" ] || wanted+=("$name=$version")
  done < <(libraries)
  if [ ${#wanted[@]} != 0 ]; then
    command -v apt-get >/dev/null || die "there is no apt-get: put the archives of sources.txt into $SOURCES"
    mkdir -p "$state/lists/partial" "$state/cache"
    mirror="${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' | head -n 1)}"
    [ -n "$mirror" ] || die "this machine's apt has no source of Debian 12: set DEBIAN_MIRROR to a mirror"
    echo "deb-src $mirror bookworm main" >"$state/sources.list"
    printf '%s\n' "Dir::Etc::sourcelist \"$state/sources.list\";" 'Dir::Etc::sourceparts "-";' \
      "Dir::State::lists \"$state/lists\";" "Dir::Cache \"$state/cache\";" >"$state/conf"
    APT_CONFIG="$state/conf" run apt-get update -q
    for name in "${wanted[@]}"; do
      (cd "$SOURCES" && APT_CONFIG="$state/conf" run apt-get source -q --download-only "$name") || say "$name was not downloaded"
    done
  fi
  while IFS='|' read -r name version file sum spdx license patches patches_sum; do
    verify_archive "$file" "$sum"
    [ -z "$patches" ] || verify_archive "$patches" "$patches_sum"
  done < <(libraries)
}
verify_archive() {
  [ -s "$SOURCES/$1" ] || die "$1 is missing: put it into $SOURCES"
  echo "$2  $SOURCES/$1" | sha256sum --check --quiet || die "the SHA-256 of $1 does not match the one in sources.txt"
}

# with_cmake FOLDER OPTION...: configures, builds and installs the library in the current folder.
with_cmake() {
  local folder="$1"
  shift
  cmake -S "$folder" -B build-static -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$PREFIX" \
    -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$PREFIX" -DCMAKE_C_COMPILER="$TOOLS/cc" -DCMAKE_CXX_COMPILER="$TOOLS/c++" \
    -DCMAKE_AR="$TOOLS/ar" -DCMAKE_RANLIB="$TOOLS/ranlib" -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON "$@" && cmake --build build-static -j "$JOBS" && cmake --install build-static
}
with_configure() {
  CC="$TOOLS/cc" AR="$TOOLS/ar" RANLIB="$TOOLS/ranlib" CFLAGS="-O2 -fPIC" CPPFLAGS="-I$PREFIX/include -I$PREFIX/include/ncurses" LDFLAGS="-L$PREFIX/lib" \
    ./configure --host=x86_64-linux-gnu --prefix="$PREFIX" "$@"
}

# build_NAME: builds the library NAME of sources.txt, in the folder of its sources.
# Boost: only headers, which are in a separate folder for each library.
build_boost1.81() { cp -r libs/*/include/boost libs/numeric/*/include/boost "$PREFIX/include/"; }
build_fmtlib() { with_cmake . -DFMT_TEST=OFF -DFMT_DOC=OFF; }
build_gloo() {
  # g++ rejects a struct with a flexible array member in this code; without it, the older way to query an interface's
  # speed is used.
  sed -i 's/^#if LINUX_VERSION_CODE >= KERNEL_VERSION(4,6,0)$/#if 0/' gloo/common/linux.cc
  with_cmake . -DCMAKE_CXX_FLAGS="-include array -include cstdint -w" -DUSE_REDIS=OFF -DUSE_IBVERBS=OFF -DUSE_LIBUV=OFF
}
build_libzstd() { with_cmake build/cmake -DZSTD_BUILD_PROGRAMS=OFF -DZSTD_BUILD_SHARED=OFF -DZSTD_LEGACY_SUPPORT=OFF; }
build_lz4() { with_cmake build/cmake -DLZ4_BUILD_CLI=OFF -DLZ4_BUILD_LEGACY_LZ4C=OFF -DBUILD_STATIC_LIBS=ON; }
build_nlohmann_json3() { with_cmake . -DJSON_BuildTests=OFF; }
build_pcre2() {
  with_cmake . -DPCRE2_SUPPORT_JIT=ON -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_STATIC_PIC=ON
}
build_sentencepiece() {
  with_cmake . -DSPM_ENABLE_SHARED=OFF -DSPM_ENABLE_TCMALLOC=OFF -DCMAKE_CXX_FLAGS="-include cstdint -w"
}
build_snappy() {
  # Its CMake file disables run-time type information, but the programs that use it need that.
  sed -i '/fno-rtti/d; /-Werror/d' CMakeLists.txt
  sed -i 's/^size_t AdvanceToNextTag(/inline &/' snappy.cc  # without `inline`, g++ refuses, because another file could replace the function
  with_cmake . -DSNAPPY_BUILD_TESTS=OFF -DSNAPPY_BUILD_BENCHMARKS=OFF
}
build_utf8proc() { with_cmake .; }
build_yaml_cpp() { with_cmake . -DYAML_CPP_BUILD_TOOLS=OFF -DYAML_CPP_BUILD_TESTS=OFF -DYAML_BUILD_SHARED_LIBS=OFF; }
build_zlib() {
  CC="$TOOLS/cc" AR="$TOOLS/ar" RANLIB="$TOOLS/ranlib" CFLAGS="-O3 -fPIC" ./configure --static --prefix="$PREFIX" &&
    make -j "$JOBS" libz.a && make install
}
# Only libcrypto, for SHA-256.
build_openssl() {
  CC="$TOOLS/cc" AR="$TOOLS/ar" RANLIB="$TOOLS/ranlib" ./Configure linux-x86_64 --prefix="$PREFIX" --libdir=lib \
    no-shared no-module no-dso no-engine no-tests no-ssl no-tls no-dtls no-legacy no-deprecated no-async no-autoload-config \
    no-ec no-dh no-dsa no-aria no-bf no-blake2 no-camellia no-cast no-chacha no-cmac no-cms no-comp no-ct no-des no-idea no-md4 \
    no-mdc2 no-ocb no-ocsp no-poly1305 no-rc2 no-rc4 no-rmd160 no-scrypt no-seed no-siphash no-siv no-sm2 no-sm3 no-sm4 no-srp \
    no-ts no-ui-console no-whirlpool &&
    make -j "$JOBS" build_generated && make -j "$JOBS" libcrypto.a libcrypto.pc &&
    mkdir -p "$PREFIX/include/openssl" && cp include/openssl/*.h "$PREFIX/include/openssl/" &&
    cp libcrypto.a "$PREFIX/lib/" && cp libcrypto.pc "$PREFIX/lib/pkgconfig/"
}
# Terminal descriptions come from the machine; those of common terminals are also built into the library.
build_ncurses() {
  with_configure --with-termlib --without-shared --without-debug --without-cxx --without-cxx-binding --without-ada \
    --without-manpages --without-tests --without-progs --disable-db-install --enable-pc-files \
    --with-pkg-config-libdir="$PREFIX/lib/pkgconfig" --with-default-terminfo-dir=/usr/share/terminfo \
    --with-terminfo-dirs=/etc/terminfo:/lib/terminfo:/usr/share/terminfo --with-build-cc=cc \
    --with-fallbacks=xterm,xterm-256color,linux,screen,screen-256color,tmux-256color,vt100 &&
    make -j "$JOBS" libs && make install.includes install.libs
}
build_libedit() {
  with_configure --enable-static --disable-shared --disable-examples && make -j "$JOBS" && make install &&
    sed -i 's/^Libs:.*/Libs: -L${libdir} -ledit -ltinfo/; /^\(Requires\|Libs\).private/d' "$PREFIX/lib/pkgconfig/libedit.pc"
}

# library NAME VERSION FILE LICENSE_FILE [PATCHES]: unpacks, builds and installs a library, unless it is already installed.
library() {
  local name="$1" version="$2" file="$3" license="$4" patches="$5" folder="$WORK/src/$1" log="$WORK/logs/$1.log" patch
  mkdir -p "$WORK/done"
  [ "$(cat "$WORK/done/$name" 2>/dev/null)" = "$version" ] && return
  rm -rf "$folder"
  mkdir -p "$folder"
  tar -xf "$SOURCES/$file" -C "$folder" --strip-components=1
  if [ -n "$patches" ]; then # numbered patches are by the library's own authors
    tar -xf "$SOURCES/$patches" -C "$folder"
    for patch in "$folder"/debian/patches/[0-9]* "$folder"/debian/patches/cve-*; do
      [ ! -e "$patch" ] || patch -s -p1 -d "$folder" <"$patch"
    done
  fi
  say "building $name $version"
  if ! (cd "$folder" && "build_${name//-/_}") >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    die "$name was not built ($log)"
  fi
  cp "$folder/$license" "$LICENSES/$name.txt"
  echo "$version" >"$WORK/done/$name"
}

make_tools
fetch
mkdir -p "$PREFIX/lib/pkgconfig"
while IFS='|' read -r name version file sum spdx license patches patches_sum; do
  library "$name" "$version" "$file" "$license" "$patches" </dev/null
done < <(libraries)
if [ "$KIND" = cuda ]; then run "$TOOLS/cc" -O2 -fPIC -c scripts/package/glibc_compat.c -o "$PREFIX/lib/glibc_compat.o"; fi
say "static libraries: $PREFIX"
