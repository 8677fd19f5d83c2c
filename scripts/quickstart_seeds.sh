#!/usr/bin/env bash
# Measures how much the quickstart's result varies: trains its recipe with several seeds in float32 and, if the CPU
# supports it, in bfloat16, and evaluates both sets of held-out questions. Run scripts/quickstart.sh first.
# Usage: scripts/quickstart_seeds.sh [--seeds "42 1 2 3 4"] [--compute "float32 bfloat16"] [key=value ...]
#   key=value     change the training config, for example max_steps=80
# Ends with a table over the seeds: mean, least and most exact matches out of 200, and seconds of training.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

EXAMPLE=examples/cypher
RUNS=build/quickstart/seeds
QTRAIN=build/release/bin/qtrain
RESULTS=$RUNS/results.txt

seeds="42 1 2 3 4"
computes="float32 bfloat16"
overrides=()
while [ $# -gt 0 ]; do
  case "$1" in
    --seeds) seeds="$2" && shift ;;
    --compute) computes="$2" && shift ;;
    -h | --help) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *=*) overrides+=("$1") ;;
    *) die "unknown option '$1' (see --help)" ;;
  esac
  shift
done
[ -x "$QTRAIN" ] && [ -s $EXAMPLE/model/config.json ] && [ -s $EXAMPLE/data/eval_other_seed.jsonl ] ||
  die "scripts/quickstart.sh builds the program, the model and the data: run it first"

mkdir -p "$RUNS"
: >"$RESULTS"
for compute in $computes; do
  unset QTRAIN_CPU_ISA
  if [ "$compute" = bfloat16 ]; then
    if ! "$QTRAIN" doctor | grep -q '^bfloat16 dot products  *yes'; then
      say "bfloat16: skipped, this CPU does not support it"
      continue
    fi
    export QTRAIN_CPU_ISA=avx512_bf16 # also where it is no faster than float32
  fi
  for seed in $seeds; do
    out="$RUNS/$compute-$seed"
    keys=(compute_dtype="$compute" seed="$seed" output_dir="$out" ${overrides[@]+"${overrides[@]}"})
    "$QTRAIN" $EXAMPLE/config.json --resume never "${keys[@]}" --quiet
    matches=()
    for rows in eval eval_other_seed; do
      "$QTRAIN" eval $EXAMPLE/config.json "${keys[@]}" eval_dataset_name=$EXAMPLE/data/$rows.jsonl --adapter "$out" \
        --generate --max_new_tokens 96 --rows "$out/$rows.jsonl" --json --quiet >"$out/$rows.json"
      matches+=("$(json_number exact_match "$out/$rows.json")")
    done
    seconds="$(json_number train_runtime "$out/train_results.json")"
    say "$compute seed $seed: ${matches[*]} exact, $seconds s of training"
    say "$compute ${matches[*]} $seconds" >>"$RESULTS"
  done
done

say ""
awk '{ n[$1]++
       for (i = 2; i <= 4; ++i) {
         sum[$1, i] += $i
         if (n[$1] == 1 || $i < least[$1, i]) least[$1, i] = $i
         if (n[$1] == 1 || $i > most[$1, i]) most[$1, i] = $i
       } }
     END { for (c in n) {
       printf "%s: %d seeds\n", c, n[c]
       printf "  held-out questions      mean %.1f %%, least %.1f %%, most %.1f %%\n",
         100 * sum[c, 2] / n[c], 100 * least[c, 2], 100 * most[c, 2]
       printf "  questions, other seed   mean %.1f %%, least %.1f %%, most %.1f %%\n",
         100 * sum[c, 3] / n[c], 100 * least[c, 3], 100 * most[c, 3]
       printf "  training                mean %.0f s, least %.0f s, most %.0f s\n",
         sum[c, 4] / n[c], least[c, 4], most[c, 4]
     } }' "$RESULTS"
