# Functions that make an empty Debian or Ubuntu, for check.sh and newcomer.sh; included with `source` after common.sh.

# wheel_of_kind: prints the path of the wheel that build.sh made.
wheel_of_kind() {
  local wheel
  wheel="$(echo "$OUT"/qtrain-*manylinux_"${GLIBC/./_}"_x86_64.whl)"
  [ -e "$wheel" ] || die "no wheel: run scripts/package/build.sh $KIND first"
  echo "$wheel"
}

# suites_of_kind: prints the oldest Debian that this kind of package supports, and an Ubuntu.
suites_of_kind() {
  if [ "$KIND" = cpu ]; then echo bullseye jammy; else echo bookworm jammy; fi
}

# make_chroot SUITE: makes a chroot that has Python but none of the build's packages, unless it exists, and sets CHROOT and
# DISTRIBUTION. Fails if debootstrap does, for example because no mirror answers.
make_chroot() {
  local suite="$1" mirror="${DEBIAN_MIRROR:-}" components=main log="$PACKAGES/debootstrap.log"
  CHROOT="$PACKAGES/chroot-$suite"
  DISTRIBUTION="Debian $suite"
  case "$suite" in
    bionic | focal | jammy | noble)
      DISTRIBUTION="Ubuntu $suite"
      mirror="${UBUNTU_MIRROR:-}"
      components=main,universe
      ;;
  esac
  [ "$(id -u)" = 0 ] || die "making a chroot requires root"
  [ ! -e "$CHROOT/made" ] || return 0
  command -v debootstrap >/dev/null || die "debootstrap is not installed (apt-get install debootstrap)"
  rm -rf "$CHROOT"
  if ! run debootstrap --variant=minbase --include=python3,python3-venv --components="$components" "$suite" "$CHROOT" \
    ${mirror:+"$mirror"} >"$log" 2>&1; then
    tail -n 3 "$log"
    say "debootstrap failed: $log"
    return 1
  fi
  touch "$CHROOT/made"
}

# check_empty: reports which libraries that our packages include are in the chroot anyway.
check_empty() {
  local library
  for library in libfmt libyaml-cpp libsentencepiece libgloo libpcre2-8 libstdc++; do
    ! find "$CHROOT/usr/lib" "$CHROOT/lib" -name "$library.so*" | grep -q . || say "note: $library is in the chroot"
  done
}

# give_network: copies this machine's name servers and certificates into the chroot.
give_network() {
  local certificates="${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}"
  cp /etc/resolv.conf "$CHROOT/etc/resolv.conf"
  [ ! -e "$certificates" ] || cp "$certificates" "$CHROOT/etc/certificates.crt"
}

# in_chroot USER HOME COMMAND...: runs a command in the chroot, with a /proc of its own.
in_chroot() {
  local user="$1" home="$2" variables=(PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1) name
  shift 2
  [ ! -e "$CHROOT/etc/certificates.crt" ] || variables+=(PIP_CERT=/etc/certificates.crt)
  for name in http_proxy https_proxy; do [ -z "${!name:-}" ] || variables+=("$name=${!name}"); done
  run unshare --mount --pid --fork --mount-proc="$CHROOT/proc" chroot --userspec="$user" "$CHROOT" /usr/bin/env -i \
    HOME="$home" "${variables[@]}" "$@"
}

# write_run FOLDER: writes a config.json without weights, rows, and a training config.
write_run() {
  local place="$1"
  rm -rf "$place"
  mkdir -p "$place/model"
  [ -d tests/data/golden/chatml ] || run scripts/goldens.py unpack
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
}
