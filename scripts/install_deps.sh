#!/usr/bin/env bash
# Installs the distribution packages that a build of qtrain needs (Debian 12, Ubuntu 22.04 or newer).
# Usage: scripts/install_deps.sh [--dev] [--docs]
#   --dev   also install what scripts/test.sh uses: clang-format, clang-tidy, valgrind, ccache, the shells whose completion
#           is tested, and nginx, behind which the server is tested
#   --docs  also install what builds the documentation site: mkdocs with mkdocs-material, and doxygen
# Installs only what is missing. Safe to run again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() { sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}"; }

dev=0
docs=0
for argument in "$@"; do
  case "$argument" in
    --dev) dev=1 ;;
    --docs) docs=1 ;;
    -h | --help) usage && exit 0 ;;
    *) die "unknown option '$argument' (see --help)" ;;
  esac
done

has_compiler() {
  local compiler version
  for compiler in ${CXX:-} g++ g++-12; do
    version="$("$compiler" -dumpversion 2>/dev/null || echo 0)"
    [ "${version%%.*}" -ge 12 ] && return 0
  done
  return 1
}
has_package() { [ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c1-2)" = ii ]; }
has_program() { command -v "$1" >/dev/null 2>&1; }
has_pip() { python3 -m pip --version >/dev/null 2>&1; }

compiler_package=g++
. /etc/os-release 2>/dev/null || true
[ "${ID:-}:${VERSION_ID:-}" = ubuntu:22.04 ] && compiler_package=g++-12

missing=()
has_compiler || missing+=("$compiler_package")
has_program cmake || missing+=(cmake)
has_program ninja || missing+=(ninja-build)
has_program pkg-config || missing+=(pkg-config)
has_pip || missing+=(python3-pip)
libraries=(libfmt-dev nlohmann-json3-dev libpcre2-dev libsentencepiece-dev libutf8proc-dev zlib1g-dev libzstd-dev
  liblz4-dev libsnappy-dev libgloo-dev libyaml-cpp-dev libedit-dev libssl-dev
  libboost-dev libcurl4-openssl-dev libgtest-dev libgmock-dev)
if has_program dpkg-query; then
  for package in "${libraries[@]}"; do
    has_package "$package" || missing+=("$package")
  done
fi
if [ "$dev" = 1 ]; then
  has_program clang-format || missing+=(clang-format)
  has_program clang-tidy || missing+=(clang-tidy)
  has_program valgrind || missing+=(valgrind)
  has_program ccache || missing+=(ccache)
  has_program zsh || missing+=(zsh)
  has_program fish || missing+=(fish)
  has_program nginx || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
fi
if [ "$docs" = 1 ]; then
  has_program mkdocs || missing+=(mkdocs mkdocs-material)
  has_program doxygen || missing+=(doxygen)
fi

if ! has_program dpkg-query; then
  say "This is not Debian or Ubuntu. The build needs the libraries that are called, in Debian: ${libraries[*]}"
  [ ${#missing[@]} -eq 0 ] || die "missing programs: ${missing[*]}"
  exit 0
fi
if [ ${#missing[@]} -eq 0 ]; then
  say "Everything that the build needs is installed."
  exit 0
fi

say "Missing packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" != 0 ]; then
  has_program sudo || die "this needs root or sudo; run as root: apt-get install ${missing[*]}"
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
run "${as_root[@]}" apt-get update -q || say "apt-get update failed; trying with the existing package lists"
run "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" ||
  die "apt-get could not install: ${missing[*]}"
say "Installed: ${missing[*]}"
