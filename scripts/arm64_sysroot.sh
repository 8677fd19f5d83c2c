#!/usr/bin/env bash
# Makes the folder of aarch64 libraries that `cmake --preset arm64` compiles against, from the distribution's packages
# (Debian 12). Packages are only unpacked into the folder; nothing is installed.
# Usage: scripts/arm64_sysroot.sh [folder]
#   folder   default: build/arm64-sysroot; an existing one is replaced
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() { sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}"; }

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  -*) die "unknown option '$1' (see --help)" ;;
esac
folder="${1:-build/arm64-sysroot}"
packages=(libfmt-dev nlohmann-json3-dev libpcre2-dev libsentencepiece-dev libutf8proc-dev zlib1g-dev libzstd-dev
  liblz4-dev libsnappy-dev libgloo-dev libyaml-cpp-dev libedit-dev libssl-dev libboost-dev libgtest-dev libgmock-dev
  libstdc++-12-dev)
for program in apt-get dpkg-deb; do
  command -v "$program" >/dev/null || die "this script needs $program, as on Debian or Ubuntu"
done

rm -rf "$folder"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
state="$folder/.apt"
mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/etc"
touch "$state/status"
# Runs apt-get as if on an arm64 machine with nothing installed.
apt_for_arm64() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" \
    -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o APT::Sandbox::User="$(id -un)" \
    -o Debug::NoLocking=1 "$@"
}
apt_for_arm64 update >"$state/log" 2>&1 || die "the package lists for arm64 could not be downloaded: see $state/log"
apt_for_arm64 install -y --no-install-recommends --download-only "${packages[@]}" >>"$state/log" 2>&1 ||
  die "the packages could not be downloaded: see $state/log"
for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$folder"; done
# Redirect absolute links into the folder,
find "$folder" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
  ln -sfnr "$folder$target" "$link"
done
# and the paths in the packages' CMake files.
sed -i "s#\"/usr#\"$folder/usr#" "$folder"/usr/lib/aarch64-linux-gnu/cmake/*/*Targets*.cmake
rm -rf "$state"
say "Libraries for aarch64: $folder"
