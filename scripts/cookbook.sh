#!/usr/bin/env bash
# Runs the cookbook examples by the commands in each README.md, and checks their figures against limits.txt.
# Usage: scripts/cookbook.sh [--no-install] [--bin DIR] [NAME ...]
#   --no-install  do not look for missing packages
#   --bin DIR     use the qtrain in this folder instead of building one
#   NAME          an example, such as chat_lora; default: all of them, one after the other
# Each example takes minutes; its last line shows the figures. Exit code 1: a figure is beyond its limit.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install=1
bin=""
names=()
while [ $# -gt 0 ]; do
  case "$1" in
    --no-install) install=0 ;;
    --bin) bin="$(cd "$2" && pwd)" && shift ;;
    -h | --help) sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    -*) die "unknown option '$1' (see --help)" ;;
    *) [ -s "examples/$1/limits.txt" ] || die "no example '$1' with a limits.txt" && names+=("$1") ;;
  esac
  shift
done
[ ${#names[@]} -gt 0 ] || mapfile -t names < <(for file in examples/*/limits.txt; do basename "$(dirname "$file")"; done)

# commands_of NAME: the lines of the first shell block in the example's README.md.
commands_of() { awk '/^```sh$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "examples/$1/README.md"; }

# values KEY FILE: the numbers that follow the key, one for each evaluation.
values() { sed -nE 's/^(.*, )?'"$1"' ([0-9.eE+-]+).*/\2/p' "$2"; }

# figures NAME LOG: the figures of a finished run as KEY=VALUE lines.
figures() {
  local key pair results="examples/$1/output/train_results.json"
  for key in exact_match perplexity; do
    mapfile -t pair < <(values "$key" "$2")
    if [ ${#pair[@]} = 2 ]; then
      printf '%s_before=%s\n%s_after=%s\n' "$key" "${pair[0]%[:,]}" "$key" "${pair[1]%[:,]}"
    fi
  done
  if [ ${#pair[@]} = 2 ]; then awk -v a="${pair[1]}" -v b="${pair[0]}" 'BEGIN { printf "perplexity_ratio=%.3f\n", a / b }'; fi
  for key in train_runtime tokens_per_second peak_rss_mb; do
    printf '%s=%.0f\n' "$key" "$(json_number "$key" "$results")"
  done
}

# check_limits NAME FIGURES: checks the limits, which are lines "KEY >= VALUE" or "KEY <= VALUE"; fails for a missing figure.
check_limits() {
  awk -v name="$1" -v figures="$2" '
    BEGIN { n = split(figures, lines, "\n"); for (i = 1; i <= n; ++i) { split(lines[i], f, "="); value[f[1]] = f[2] } }
    /^[^#]/ && NF == 3 {
      fine = ($1 in value) && ($2 == ">=" ? value[$1] + 0 >= $3 + 0 : value[$1] + 0 <= $3 + 0)
      if (!fine) { printf "failed: %s: %s is %s, expected %s %s\n", name, $1, ($1 in value) ? value[$1] : "missing", $2, $3; bad = 1 }
    }
    END { exit bad }' "examples/$1/limits.txt"
}

run_example() {
  local name="$1" log="build/cookbook/$1.log" line found begun="$SECONDS"
  heading "$name"
  mkdir -p build/cookbook
  : >"$log"
  while IFS= read -r line; do
    say "\$ $line"
    if ! bash -c "$line" 2>&1 </dev/null | tee -a "$log"; then return 1; fi
  done < <(commands_of "$name")
  found="$(figures "$name" "$log")"
  say "$name: $(tr '\n' ' ' <<<"$found")total_seconds=$((SECONDS - begun))"
  check_limits "$name" "$found"
}

if [ -z "$bin" ]; then
  if [ "$install" = 1 ]; then run scripts/install_deps.sh; fi
  build_release qtrain
  bin="$ROOT/build/release/bin"
fi
export PATH="$bin:$PATH"
fetch_model qtrain

failed=()
for name in "${names[@]}"; do
  if ! run_example "$name"; then failed+=("$name"); fi
done
say ""
say "cookbook: $((${#names[@]} - ${#failed[@]})) of ${#names[@]} examples are within their limits${failed[*]:+, but not: ${failed[*]}}"
[ ${#failed[@]} = 0 ]
