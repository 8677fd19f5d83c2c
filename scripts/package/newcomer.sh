#!/usr/bin/env bash
# Plays a newcomer in an empty Debian, without root, who has only the wheel and the documentation: runs the commands of
# docs/guides/wheel.md and then those of docs/guides/quickstart.md, and checks what each one leaves behind. Takes a quarter of
# an hour on two cores, and needs PyPI.
# Usage: scripts/package/newcomer.sh [cpu|cuda]       (as root: it makes a chroot with debootstrap)
#   SUITE=jammy    use an Ubuntu instead
#   STEPS=230      training steps of the quickstart; with fewer, its result is not checked; with 0, it is skipped
set -euo pipefail
SECONDS=0
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source scripts/package/chroot.sh
package_options 2,7 "$@"
wheel="$(wheel_of_kind)"
steps="${STEPS:-230}"
suites="$(suites_of_kind)"
make_chroot "${SUITE:-${suites%% *}}" || exit 1
place="$CHROOT/newcomer"
rm -rf "$place"
mkdir -p "$place/blocks"

for page in wheel quickstart; do scripts/package/page_blocks.sh "docs/guides/$page.md" "$place/blocks"; done

cp "$wheel" "$place/"
if [ "$steps" != 0 ]; then
  # The quickstart's rows come from a program of the build that no package includes.
  program="$(find build -path '*/bin/cypher_dataset' | head -n 1)"
  if [ -z "$program" ]; then
    build_release cypher_dataset
    program=build/release/bin/cypher_dataset
  fi
  run "$program" --output "$place/rows"
  mkdir -p "$place/examples/cypher"
  sed "s/\"max_steps\": 230/\"max_steps\": $steps/" examples/cypher/config.json >"$place/examples/cypher/config.json"
  [ "$steps" -ge 230 ] || sed -i '5,$d' "$place/rows/eval.jsonl"
fi
cp scripts/package/newcomer_steps.sh scripts/package/ask_server.py "$place/"
chown -R 1000:1000 "$place"
give_network
check_empty
in_chroot 1000:1000 /newcomer bash /newcomer/newcomer_steps.sh "$steps"
say ""
say "newcomer: all steps succeeded in $DISTRIBUTION, $SECONDS s"
