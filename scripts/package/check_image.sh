#!/usr/bin/env bash
# Builds the image of Containerfile with buildah, on a base made from check.sh's chroot so that no registry is needed, and
# trains in it as the Containerfile's first lines describe: with a folder mounted at /data and the config as the only argument.
# Usage: scripts/package/check_image.sh [cpu|cuda]     (as root)
#   BASE=docker.io/library/debian:12-slim    use a base image from a registry instead
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source scripts/package/chroot.sh
package_options 2,5 "$@"
command -v buildah >/dev/null || die "buildah is not installed (apt-get install buildah)"
[ "$(id -u)" = 0 ] || die "making a chroot requires root"

# buildah's storage is separate from the machine's, and containers run in a chroot.
images="$PACKAGES/images"
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
buildah=(buildah --root "$images/storage" --runroot "$images/run")

base_of_chroot() {
  local suites container folder
  suites="$(suites_of_kind)"
  make_chroot "${suites%% *}" || exit 1
  container="$("${buildah[@]}" from scratch)"
  folder="$("${buildah[@]}" mount "$container")"
  tar -C "$CHROOT" --exclude=./check --exclude=./newcomer --exclude='./tmp/*' -cf - . | tar -C "$folder" -xf -
  "${buildah[@]}" umount "$container" >/dev/null
  BASE="localhost/qtrain-base-$KIND"
  "${buildah[@]}" commit -q --rm "$container" "$BASE" >/dev/null
}

rm -rf "$images"
[ -n "${BASE:-}" ] || base_of_chroot
run "${buildah[@]}" build --pull=missing -f scripts/package/Containerfile -t "qtrain:$KIND" --build-arg "BASE=$BASE" \
  --build-arg "KIND=$SUFFIX" "$OUT"
container="$("${buildah[@]}" from --pull-never "localhost/qtrain:$KIND")"
program="$("${buildah[@]}" inspect --format '{{index .OCIv1.Config.Entrypoint 0}}' "$container")"
write_run "$images/data"
chown -R 1000:1000 "$images/data"
run "${buildah[@]}" run --user 1000:1000 --volume "$images/data:/data" "$container" -- "$program" run.yaml 2>&1 | tee "$PACKAGES/image.log"
! grep -q 'Permission denied' "$PACKAGES/image.log" || die "a folder of the image cannot be written"
[ -s "$images/data/output/model.safetensors" ] || die "no model in the mounted folder"
[ "$(stat -c %u "$images/data/output/model.safetensors")" = 1000 ] || die "the model belongs to another user"
rm -rf "$images"
say "check_image: an image on $BASE trains"
