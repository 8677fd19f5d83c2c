#!/usr/bin/env bash
# Installs what scripts/package/build.sh made in a Debian that has Python and nothing of the build, the oldest that it is
# for, and trains, resumes, answers and trains by two ranks there with a model of a few thousand weights.
# Usage: scripts/package/check.sh [cpu|cuda]          (as root: it makes a chroot with debootstrap)
#   SUITE=bullseye    another Debian: 11 has glibc 2.31, 12 (bookworm) 2.36
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
package_options 2,5 "$@"
suite=bullseye
[ "$KIND" = cpu ] || suite=bookworm
SUITE="${SUITE:-$suite}"
CHROOT="$PACKAGES/chroot-$SUITE"
wheel="$(echo "$OUT"/qtrain-*manylinux_"${GLIBC/./_}"_x86_64.whl)"
[ "$(id -u)" = 0 ] || die "a chroot is made by root"
command -v debootstrap >/dev/null || die "debootstrap is not installed (apt-get install debootstrap)"
[ -e "$wheel" ] || die "no wheel: run scripts/package/build.sh $KIND first"

if [ ! -e "$CHROOT/made" ]; then
  rm -rf "$CHROOT"
  run debootstrap --variant=minbase --include=python3,python3-venv "$SUITE" "$CHROOT" ${DEBIAN_MIRROR:-} \
    >"$PACKAGES/debootstrap.log" 2>&1 || die "debootstrap failed: $PACKAGES/debootstrap.log"
  touch "$CHROOT/made"
fi
for library in libfmt libyaml-cpp libsentencepiece libgloo libpcre2-8 libstdc++; do
  ! find "$CHROOT/usr/lib" "$CHROOT/lib" -name "$library.so*" | grep -q . || say "note: $library is in the chroot"
done

place="$CHROOT/check"
rm -rf "$place"
mkdir -p "$place/model"
tail="$([ "$KIND" = cpu ] || echo "-$KIND")"
cp "$wheel" "$OUT"/qtrain-*-x86_64"$tail".tar.gz "$OUT"/qtrain-*-amd64"$tail".deb "$place/"
cp tests/data/golden/chatml/tokenizer.json tests/data/golden/chatml/tokenizer_config.json "$place/model/"
cat >"$place/model/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 256, "hidden_act": "silu", "tie_word_embeddings": true}
END
for i in $(seq 40); do echo "{\"text\": \"row $i says $((i * i))\"}"; done >"$place/rows.jsonl"
cat >"$place/run.yaml" <<'END'
model_name_or_path: model
random_init: true
dtype: float32
dataset_name: rows.jsonl
max_length: 32
output_dir: output
per_device_train_batch_size: 4
max_steps: 6
save_steps: 3
logging_steps: 2
learning_rate: 1e-3
lr_scheduler_type: constant
seed: 1
END
cat >"$place/steps.sh" <<'END'
set -eux
cd /check
python3 -m venv venv
venv/bin/pip install --quiet --no-index --disable-pip-version-check ./*.whl
export PATH=/check/venv/bin:$PATH
qtrain --version
python3 -m qtrain --version
qtrain doctor
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
# /proc, of this run alone
run unshare --mount --pid --fork --mount-proc="$CHROOT/proc" chroot "$CHROOT" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 sh /check/steps.sh
say "check: wheel, tarball and Debian package install and train in Debian $SUITE"
