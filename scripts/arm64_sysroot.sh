#!/usr/bin/env bash
# Makes the folder of libraries for aarch64 that `cmake --preset arm64` compiles against, of the distribution's packages
# (Debian 12). Nothing is installed: packages are unpacked there only.
# Usage: scripts/arm64_sysroot.sh [folder]
#   folder   build/arm64-sysroot where it is left out; made anew
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
  command -v "$program" >/dev/null || die "this needs $program of Debian or Ubuntu"
done

rm -rf "$folder"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
state="$folder/.apt"
mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/etc"
touch "$state/status"
# As on a machine of that architecture on which nothing is installed.
apt_for_arm64() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$state" \
    -o Dir::State::status="$state/status" -o Dir::Cache="$state" -o APT::Sandbox::User="$(id -un)" \
    -o Debug::NoLocking=1 "$@"
}
apt_for_arm64 update >"$state/log" 2>&1 || die "no lists of packages for arm64: see $state/log"
apt_for_arm64 install -y --no-install-recommends --download-only "${packages[@]}" >>"$state/log" 2>&1 ||
  die "packages could not be had: see $state/log"
for package in "$state"/archives/*.deb; do dpkg-deb -x "$package" "$folder"; done
# Links are to lead into the folder.
find "$folder" -type l -lname '/*' -printf '%p %l\n' | while read -r link target; do
  ln -sfnr "$folder$target" "$link"
done
# So are the places that CMake's files of the packages name.
sed -i "s#\"/usr#\"$folder/usr#" "$folder"/usr/lib/aarch64-linux-gnu/cmake/*/*Targets*.cmake
rm -rf "$state"
say "Libraries for aarch64: $folder"
