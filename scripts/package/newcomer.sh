#!/usr/bin/env bash
# A newcomer in an empty Debian, who has the wheel and README.md alone and no root: runs the commands of its section "From a
# wheel" and then those of the quickstart, and checks what each leaves. Takes a quarter of an hour on two cores, and PyPI.
# Usage: scripts/package/newcomer.sh [cpu|cuda]       (as root: it makes a chroot with debootstrap)
#   SUITE=jammy    in an Ubuntu instead
#   STEPS=230      of the quickstart's training; fewer are not measured, 0 leaves it out
set -euo pipefail
SECONDS=0
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source scripts/package/chroot.sh
package_options 2,6 "$@"
wheel="$(wheel_of_kind)"
steps="${STEPS:-230}"
suites="$(suites_of_kind)"
make_chroot "${SUITE:-${suites%% *}}" || exit 1
place="$CHROOT/newcomer"
rm -rf "$place"
mkdir -p "$place/blocks"

# blocks HEADING: writes the fenced blocks of a section of README.md, one after the other, as blocks/HEADING.1, .2, ...
blocks() {
  awk -v heading="## $1" -v file="$place/blocks/${1// /_}" '
    /^## / { inside = $0 == heading }
    inside && /^```/ { open = !open; if (open) ++n; next }
    inside && open { print > (file "." n) }' README.md
}
blocks "From a wheel"
blocks "What the quickstart does"

cp "$wheel" "$place/"
if [ "$steps" != 0 ]; then
  # Its rows come from a program of the build, which no package has.
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
