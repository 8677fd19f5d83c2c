#!/usr/bin/env bash
# Installs the packages from scripts/package/build.sh in empty systems: the oldest supported Debian, and an Ubuntu. They
# have Python but none of the build's packages. There it trains a model of a few thousand weights, resumes, generates, and
# trains on two ranks, installed from wheel, tarball and Debian package. The cuda wheel must also find NVIDIA's PyPI packages.
# Usage: scripts/package/check.sh [cpu|cuda]          (as root: it makes chroots with debootstrap)
#   SUITES="bullseye jammy"  other suites. glibc: 2.31 in Debian 11 and Ubuntu 20.04 (focal), 2.35 in jammy, 2.36 in bookworm
#   DEBIAN_MIRROR=URL, UBUNTU_MIRROR=URL  mirrors to use; an Ubuntu that cannot be downloaded is skipped
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source scripts/package/chroot.sh
package_options 2,7 "$@"
wheel="$(wheel_of_kind)"

write_steps() {
  cat >"$1" <<'END'
set -eux
cd /check
python3 -m venv venv
venv/bin/pip install --quiet --no-index ./*.whl
export PATH=/check/venv/bin:$PATH
qtrain --version
python3 -m qtrain --version
qtrain doctor
if [ "$1" = cuda ]; then
  pip install --quiet --no-cache-dir "$(echo ./*.whl)[cuda]"
  qtrain doctor >doctor.txt
  grep '^cuBLASLt .*/site-packages/nvidia/.*/libcublasLt.so.13' doctor.txt
  grep '^NCCL .*/site-packages/nvidia/.*/libnccl.so.2' doctor.txt
fi
qtrain run.yaml max_steps=3
qtrain run.yaml
test -s output/model.safetensors
qtrain run.yaml output_dir=two nproc=2
qtrain generate --model output --raw --prompt "row 7" --max_new_tokens 4 --greedy
qtrain export --model output --output output.gguf --type q8_0
tar -xf ./*.tar.gz
cmp qtrain-*/bin/qtrain venv/lib/python3*/site-packages/qtrain/bin/qtrain
qtrain-*/bin/qtrain run.yaml output_dir=again
cmp again/model.safetensors output/model.safetensors
dpkg -i ./*.deb
cmp /usr/bin/qtrain venv/lib/python3*/site-packages/qtrain/bin/qtrain
/usr/bin/qtrain --version
dpkg -r qtrain
test ! -e /usr/bin/qtrain
END
}

checked=()
for suite in ${SUITES:-$(suites_of_kind)}; do
  if ! make_chroot "$suite"; then
    case "$DISTRIBUTION" in Debian*) exit 1 ;; esac
    say "skipped: $DISTRIBUTION"
    continue
  fi
  heading "$DISTRIBUTION"
  check_empty
  write_run "$CHROOT/check"
  cp "$wheel" "$OUT"/qtrain-*-x86_64"$SUFFIX".tar.gz "$OUT"/qtrain-*-amd64"$SUFFIX".deb "$CHROOT/check/"
  write_steps "$CHROOT/check/steps.sh"
  give_network
  in_chroot root /check sh /check/steps.sh "$KIND"
  checked+=("$DISTRIBUTION")
done
[ ${#checked[@]} != 0 ] || die "nothing was checked"
say ""
say "check: wheel, tarball and Debian package install and train in $(printf '%s, ' "${checked[@]}" | sed 's/, $//')"
