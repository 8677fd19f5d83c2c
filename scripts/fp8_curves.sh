#!/usr/bin/env bash
# Trains a small model under the execution harness in bfloat16 and in FP8, and compares the losses (the figures in
# docs/kernels/quantization.md). The model has learned this repository's documentation before, on the CPU, and learns
# the rows of examples/cypher with all weights, or with --smollm2 it is SmolLM2-135M-Instruct with an adapter.
# Usage: scripts/fp8_curves.sh [--smollm2] [--seeds "1 2 3"] [--variants "bf16 blockwise ..."] [key=value ...]
#   --variants    of: bf16 blockwise tensorwise blockwise_forward tensorwise_forward
#   key=value     change the config of all runs, for example max_steps=20
# Ends with a table: mean losses of updates, and the loss of 40 held-out rows in float32.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

RUNS=build/fp8_curves
BIN=build/emulated/bin
QTRAIN=$BIN/qtrain
HARNESS="capability=90,gemm=library"

smollm2=0
seeds="1 2 3"
variants="bf16 blockwise tensorwise blockwise_forward"
overrides=()
while [ $# -gt 0 ]; do
  case "$1" in
    --smollm2) smollm2=1 ;;
    --seeds) seeds="$2" && shift ;;
    --variants) variants="$2" && shift ;;
    -h | --help) sed -n '2,9s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *=*) overrides+=("$1") ;;
    *) die "unknown option '$1' (see --help)" ;;
  esac
  shift
done

keys_of_variant() {
  case "$1" in
    bf16) ;;
    blockwise | tensorwise) say "fp8=true fp8_recipe=$1" ;;
    blockwise_forward | tensorwise_forward) say "fp8=true fp8_recipe=${1%_forward} fp8_forward=true" ;;
    *) die "unknown variant '$1' (see --help)" ;;
  esac
}
for variant in $variants; do keys_of_variant "$variant" >/dev/null; done

choose_compiler
configure emulated
run cmake --build --preset emulated --target qtrain cypher_dataset docs_dataset
mkdir -p $RUNS
say '{}' >$RUNS/config.json
run $BIN/cypher_dataset --output $RUNS/data
head -n 40 $RUNS/data/eval.jsonl >$RUNS/data/held_out.jsonl

# A model of 3.25 million parameters.
make_small_model() {
  mkdir -p $RUNS/untrained
  cp tests/data/golden/chatml/{tokenizer.json,tokenizer_config.json,chat_template.jinja} $RUNS/untrained
  cat >$RUNS/untrained/config.json <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 400, "hidden_size": 256,
 "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "initializer_range": 0.02, "rope_theta": 10000.0,
 "hidden_act": "silu", "eos_token_id": 2, "tie_word_embeddings": true, "torch_dtype": "float32"}
END
  run $BIN/docs_dataset --output $RUNS/docs.jsonl docs README.md CONTRIBUTING.md
  run $QTRAIN $RUNS/config.json model_name_or_path=$RUNS/untrained random_init=true dataset_name=$RUNS/docs.jsonl \
    device=cpu bf16=false dtype=float32 packing=true packing_strategy=wrapped max_length=128 \
    per_device_train_batch_size=6 max_steps=150 learning_rate=3e-3 lr_scheduler_type=cosine warmup_steps=10 \
    weight_decay=0.1 save_strategy=no seed=7 output_dir="$model" --resume never --quiet
}

keys=("dataset_name=$RUNS/data/train.jsonl" bf16=true packing=true max_length=128 per_device_train_batch_size=1
  gradient_accumulation_steps=1 gradient_checkpointing=false logging_steps=1 save_strategy=no)
evaluated=("eval_dataset_name=$RUNS/data/held_out.jsonl" device=cpu bf16=false max_length=512)
if [ "$smollm2" = 1 ]; then
  model=$MODEL
  kind=smollm2
  fetch_model "$QTRAIN"
  keys+=(assistant_only_loss=true dtype=bfloat16 use_peft=true lora_r=16 lora_alpha=32 lora_dropout=0
    lora_target_modules=all-linear max_steps=24 learning_rate=5e-4 lr_scheduler_type=constant_with_warmup
    warmup_steps=2)
  evaluated+=(assistant_only_loss=true)
else
  model=$RUNS/model
  kind=small
  [ -s $RUNS/model/model.safetensors ] || make_small_model
  keys+=(packing_strategy=wrapped dtype=float32 max_steps=40 learning_rate=1e-3 lr_scheduler_type=cosine warmup_steps=4)
fi

# The mean losses of ten updates each, and the held-out loss.
losses_of() {
  local out="$1" adapter=()
  [ "$smollm2" = 0 ] || adapter=(--adapter "$out")
  sed -nE 's/.*"loss": ?([0-9.]+).*/\1/p' "$out/metrics.jsonl" |
    awk '{ sum += $1 } NR % 10 == 0 { printf " %.4f", sum / 10; sum = 0 }'
  "$QTRAIN" eval $RUNS/config.json model_name_or_path="$model" output_dir="$out" "${evaluated[@]}" \
    ${adapter[@]+"${adapter[@]}"} --json --quiet >"$out/eval.json" 2>"$out/eval.log" || die "see $out/eval.log"
  printf ' %.4f' "$(json_number eval_loss "$out/eval.json")"
}

table=""
for seed in $seeds; do
  for variant in $variants; do
    out="$RUNS/$kind-$variant-$seed"
    # shellcheck disable=SC2046 # several keys
    run env QTRAIN_EMULATION=$HARNESS XDG_CACHE_HOME=$RUNS/cache "$QTRAIN" $RUNS/config.json \
      model_name_or_path="$model" device=cuda "${keys[@]}" seed="$seed" output_dir="$out" \
      $(keys_of_variant "$variant") ${overrides[@]+"${overrides[@]}"} --resume never --quiet
    table+="$variant, seed $seed:$(losses_of "$out")"$'\n'
  done
done
say ""
say "mean losses of each ten updates, and of the held-out rows:"
printf '%s' "$table"
