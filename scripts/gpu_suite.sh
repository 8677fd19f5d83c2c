#!/usr/bin/env bash
# Checks everything that only a GPU can show, in under nine minutes: tests, memory checks, speed against PyTorch.
# Usage: scripts/gpu_suite.sh [--prebuilt PATH] [--peers PATH] [--only PARTS] [--dry-run --library FILE] [--list]
#   --prebuilt PATH  programs from scripts/gpu_prebuild.sh (its folder or its .tar.xz), or a build folder; default: build
#                    them here. Needed on a machine without the build's packages; it also leaves all the time to the GPU
#                    checks
#   --peers PATH     Python packages that the machine lacks, as made by scripts/repack_bitsandbytes.py: a folder, which is
#                    added to PYTHONPATH, or a .tar.xz of one
#   --only PARTS     only the parts that match these patterns, separated by commas: 'test_*,memcheck'. 'step *' and
#                    'attribution *' include parts that do not run by default
#   --list           only print the parts with their budgets in seconds, and the tests in each
#   --dry-run        run tiny sizes on a machine without a GPU, with the programs of an `emulated` build as DIR
#   --library FILE   for a dry run: the libqtrain_ops.so of a CPU build
# Needs nvcc 13 (compute-sanitizer, cuBLASLt) and python3 with torch, transformers and peft; no network. If one part fails,
# the others still run. Results: OUT/results.json and OUT/suite.log (OUT: build/gpu_suite), and a table of figures with
# their values, goals and ratios.
set -uo pipefail
SECONDS=0
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

prebuilt=""
library=""
peers=""
list=0
dry=0
only=""
command_line="scripts/gpu_suite.sh $*"
while [ $# -gt 0 ]; do
  case "$1" in
    --prebuilt)
      [ -e "${2:-}" ] || die "--prebuilt needs a folder or a .tar.xz file"
      prebuilt="$(realpath "$2")"
      shift
      ;;
    --library)
      [ -f "${2:-}" ] || die "--library needs a file"
      library="$(realpath "$2")"
      shift
      ;;
    --peers)
      [ -e "${2:-}" ] || die "--peers needs a folder or a .tar.xz"
      peers="$(realpath "$2")"
      shift
      ;;
    --only)
      only="${2:-}"
      [ -n "$only" ] || die "--only needs patterns of parts"
      shift
      ;;
    --dry-run) dry=1 ;;
    --list) list=1 ;;
    -h | --help) sed -n '2,16s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) die "unknown option '$1' (see --help)" ;;
  esac
  shift
done

# The parts and their budgets in seconds. Those of `kernels` and `step` include importing PyTorch. memcheck and racecheck
# come last: they share the remaining time, which is at least `checks` seconds.
imports=25
checks=26
parts=("doctor" "test_cuda" "test_e2e_cuda" "test_ranks" "kernels" "qtrain bench" "step qwen3-0.6b" "step qwen3-0.6b-qlora"
  "step llama-3.1-8b-qlora" "attribution qwen3-0.6b" "attribution llama-3.1-8b-qlora" "memcheck" "racecheck")
# Parts that do not run by default, because they take long or check the same as others.
rare=("step llama-3.1-8b" "step qwen3-8b-adamw8bit" "attribution qwen3-0.6b-qlora" "attribution qwen3-8b-adamw8bit")
declare -A budgets=(["doctor"]=10 ["test_cuda"]=45 ["test_e2e_cuda"]=45 ["test_ranks"]=55 ["kernels"]=90
  ["qtrain bench"]=15 ["step qwen3-0.6b"]=53 ["step qwen3-0.6b-qlora"]=53 ["step llama-3.1-8b-qlora"]=85
  ["attribution qwen3-0.6b"]=12 ["attribution llama-3.1-8b-qlora"]=25 ["memcheck"]=$checks ["racecheck"]=0
  ["step llama-3.1-8b"]=115 ["step qwen3-8b-adamw8bit"]=145 ["attribution qwen3-0.6b-qlora"]=12
  ["attribution qwen3-8b-adamw8bit"]=60)
planned=0 # seconds of the parts that run by default
for name in "${parts[@]}"; do planned=$((planned + budgets["$name"])); done
# The tests of test_e2e_cuda that start several ranks, which share the GPU, including HarnessRanks and derived classes,
# which are skipped on a GPU. All other tests run in the part test_e2e_cuda.
ranks_tests='CudaRanks.*:*CudaRanksOfStage.*:CudaContext.*:HarnessRanks.*:OrderedSums.*:*MissingAtTheStart.*:CudaGroups.*'

if [ "$list" = 1 ]; then
  for name in "${parts[@]}"; do printf '%s\t%s\n' "$name" "${budgets["$name"]}"; done
  for name in "${rare[@]}"; do printf '%s\t%s\t%s\n' "$name" "${budgets["$name"]}" "only if asked for"; done
  printf 'planned\t%s\n' "$planned"
  printf 'tests of test_e2e_cuda\t%s\n' "*-$ranks_tests"
  printf 'tests of test_ranks\t%s\n' "$ranks_tests"
  exit 0
fi

OUT="${OUT:-build/gpu_suite}"
mkdir -p "$OUT"
OUT="$(cd "$OUT" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
log="$OUT/suite.log"
: >"$log"
last_second=525 # no part runs longer: the whole stays below nine minutes

# wanted NAME: whether this part runs, according to --only or by default.
wanted() {
  local pattern patterns
  if [ -z "$only" ]; then
    for pattern in "${rare[@]}"; do [ "$1" != "$pattern" ] || return 1; done
    return 0
  fi
  IFS=, read -ra patterns <<<"$only"
  for pattern in "${patterns[@]}"; do
    # shellcheck disable=SC2053  # a pattern is meant
    [[ "$1" != $pattern ]] || return 0
  done
  return 1
}
if [ -n "$only" ]; then
  IFS=, read -ra patterns <<<"$only"
  for pattern in "${patterns[@]}"; do
    found=0
    for name in "${parts[@]}" "${rare[@]}"; do
      # shellcheck disable=SC2053  # a pattern is meant
      [[ "$name" != $pattern ]] || found=1
    done
    [ "$found" = 1 ] || die "--only: no part is called '$pattern'; there are: $(printf "'%s' " "${parts[@]}" "${rare[@]}")"
  done
fi
# part NAME BUDGET COMMAND...: runs a command for at most BUDGET seconds and records how it ended.
kept=0 # seconds reserved for the last parts
part() {
  wanted "$1" || return 0
  local name="$1" budget="$2" left=$((last_second - kept - SECONDS)) begin=$SECONDS status=0 state=passed
  shift 2
  if [ "$left" -lt 5 ]; then
    printf '%s\t%s\t%s\n' "$name" "no time left" 0 >>"$work/parts.tsv"
    say "== $name: no time left"
    return
  fi
  [ "$budget" -le "$left" ] || budget="$left"
  printf '\n== %s (at most %s s)\n$ %s\n' "$name" "$budget" "$*" >>"$log"
  timeout --kill-after=5 "$budget" "$@" </dev/null >>"$log" 2>&1 || status=$?
  case "$status" in
    0) ;;
    124 | 137) state="stopped after $budget s" ;;
    *) state="failed with $status" ;;
  esac
  printf '%s\t%s\t%s\n' "$name" "$state" "$((SECONDS - begin))" >>"$work/parts.tsv"
  say "== $name: $state, $((SECONDS - begin)) s"
}
absent() {
  wanted "$1" || return 0
  printf '%s\t%s\t0\n' "$1" "skipped: $2" >>"$work/parts.tsv"
  say "== $1: skipped, $2"
}

[ "$dry" = 1 ] || scripts/goldens.py unpack || die "the goldens cannot be unpacked"
if [ -f "$prebuilt" ]; then
  mkdir "$work/prebuilt"
  tar -C "$work/prebuilt" -xf "$prebuilt" || die "$prebuilt is not an archive from scripts/gpu_prebuild.sh"
  prebuilt="$work/prebuilt"
fi
if [ -z "$prebuilt" ]; then
  [ "$dry" = 0 ] || die "--dry-run needs --prebuilt with the folder of an emulated build"
  prebuilt="$work/prebuilt"
  only="${only:+build,$only}"
  part "build" 180 scripts/gpu_prebuild.sh "$prebuilt"
fi
library="${library:-$prebuilt/lib/libqtrain_ops.so}"
for file in "$prebuilt/bin/qtrain" "$prebuilt/bin/test_cuda" "$prebuilt/bin/test_e2e_cuda" "$library"; do
  [ -f "$file" ] || say "missing: $file"
done

# PyTorch includes its own cuBLASLt, which programs use if the toolkit has none.
libraries_of_torch() { # libraries_of_torch FILE: the folder of the library among PyTorch's packages
  python3 -c 'import glob, importlib.util, os, sys
spec = importlib.util.find_spec("torch")
found = glob.glob(os.path.dirname(os.path.dirname(spec.origin)) + "/nvidia/*/lib/" + sys.argv[1]) if spec else []
print(os.path.dirname(found[0]) if found else "")' "$1"
}
programs_libraries="$(libraries_of_torch libnccl.so.2)"
if ! ls /usr/local/cuda/lib64/libcublasLt.so.13 >/dev/null 2>&1; then
  programs_libraries="$(libraries_of_torch libcublasLt.so.13)${programs_libraries:+:$programs_libraries}"
fi
own=(env "QTRAIN_SOURCE_DIR=$ROOT" "QTRAIN_PROGRAM=$prebuilt/bin/qtrain")
export XDG_CACHE_HOME="$work/cache"
if [ -f "$peers" ]; then
  mkdir "$work/peers"
  tar -C "$work/peers" -xJf "$peers" || die "$peers cannot be unpacked"
  peers="$work/peers"
fi
[ -z "$peers" ] || export PYTHONPATH="$peers${PYTHONPATH:+:$PYTHONPATH}"
[ -z "$programs_libraries" ] || own+=("LD_LIBRARY_PATH=$programs_libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
tests="$prebuilt/bin/test_cuda"
sanitizer="$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)"

if [ "$dry" = 1 ]; then
  device=(--device cpu --small)
  compiled=(--no_compile)
  test_filter='Ptx.*:*FollowsDouble/rms_norm*'
  e2e_filter='CudaBench.*'
  ranks_filter='CudaRanks.MoreThan*'
  bench=(--small)
else
  device=(--device cuda)
  compiled=()
  test_filter='*'
  e2e_filter="*-$ranks_tests"
  ranks_filter="$ranks_tests"
  bench=()
fi
quick_filter='Ptx.*:*FollowsDouble/*-*/gemm_*:*CudaGemm*' # under a sanitizer cuBLASLt takes minutes, and it is not ours to check
# Only kernels that use shared memory, in one size each: racecheck checks nothing else, and is slow.
shared_filter='Ptx.*Shared*:Ptx.Asynchronous*:*FollowsDouble/rms_norm_70x576'
shared_filter+=':*FollowsDouble/embedding_200x*:*FollowsDouble/normed_rope_40x9x64_keys3'
shared_filter+=':*FollowsDouble/cross_entropy_6x2051:*FollowsDouble/attention_*'
shared_filter+=':*FollowsDouble/dispatch_rows_many_24:*FollowsDouble/grouped_gemm_some_empty_136x72*'

# If the programs were built here, less time is left: all budgets shrink by the same factor, except the time for importing
# PyTorch in three steps and the minimum time of the two sanitizers.
fixed=$((3 * imports + checks))
room=$((last_second - SECONDS))
scaled() { # scaled SECONDS
  if [ "$room" -ge "$planned" ]; then echo "$1"; else echo $(($1 * (room - fixed) / (planned - fixed))); fi
}
budget_of() { scaled "${budgets["$1"]}"; } # budget_of PART
if wanted memcheck || wanted racecheck; then kept=$checks; fi
tests_of() { # tests_of NAME LAST COMMAND...: runs tests in several processes; those that match LAST come last
  local name="$1" last="$2"
  shift 2
  part "$name" "$(budget_of "$name")" "${own[@]}" python3 scripts/gpu_tests.py --report "$work/$name.tests.json" \
    --last "$last" --cache "$work/cache" -- "$@"
}
fits() { # fits PART CASE: whether the GPU has enough memory for the case; if not, the part is skipped
  local reason status=0
  wanted "$1" || return 1
  reason="$(python3 bench/peers/gpu_step.py --case "$2" --needs "${device[@]}" 2>>"$log")" || status=$?
  [ "$status" != 77 ] || absent "$1" "$reason"
  [ "$status" != 77 ]
}
step() { # step CASE
  local seconds
  seconds="$(scaled $(((budgets["step $1"] - imports) / 2)))" # of each program
  fits "step $1" "$1" || return 0
  part "step $1" $((2 * seconds + imports)) "${own[@]}" python3 bench/peers/gpu_step.py --qtrain "$prebuilt/bin/qtrain" \
    --case "$1" "${device[@]}" --seconds "$seconds" --json "$work/step_$1.json"
}
attribution() { # attribution CASE: measures where the time of a step goes
  local seconds
  fits "attribution $1" "$1" || return 0
  seconds="$(budget_of "attribution $1")"
  [ "$dry" = 0 ] || seconds=60 # the harness is slower than any GPU
  part "attribution $1" "$seconds" "${own[@]}" "$prebuilt/bin/qtrain" bench step "$1" --device cuda \
    "${bench[@]}" --json "$work/attribution_$1.json"
}
# Runs the tests of a filter, each pattern of which must match a test, under a sanitizer. The sanitizer's messages go into a
# separate file, which shows what was found even if the time ran out.
check() { # check TOOL BUDGET FILTER
  local pattern patterns listed
  wanted "$1" || return 0
  IFS=: read -ra patterns <<<"${3%%-*}"
  for pattern in "${patterns[@]}"; do
    listed="$("${own[@]}" "$tests" --gtest_list_tests "--gtest_filter=$pattern" 2>>"$log")"
    if [[ "$listed" != *$'\n  '* ]]; then
      printf '%s\t%s\t0\n' "$1" "failed: no test is called $pattern" >>"$work/parts.tsv"
      say "== $1: no test is called $pattern"
      return
    fi
  done
  if [ -z "$sanitizer" ]; then
    absent "$1" "there is no compute-sanitizer"
    return
  fi
  part "$1" "$2" "${own[@]}" "$sanitizer" --tool "$1" --error-exitcode 9 --log-file "$work/$1.found" "$tests" \
    "--gtest_filter=$3"
  cat "$work/$1.found" >>"$log" 2>/dev/null
  if grep -qs "Device not supported" "$work/$1.found"; then # as in some sandboxes
    sed -i "/^$1\t/d" "$work/parts.tsv"
    absent "$1" "compute-sanitizer does not support this device"
  fi
}

part "doctor" "$(budget_of doctor)" "${own[@]}" "$prebuilt/bin/qtrain" doctor
if [ "$dry" = 0 ]; then
  gpu="$(timeout 20 "${own[@]}" "$prebuilt/bin/qtrain" doctor 2>>"$log" | sed -nE 's/^CUDA {2,}//p' | head -n 1)"
  [[ "$gpu" == *"compute capability"* ]] || die "no GPU can be used: ${gpu:-qtrain doctor ends with an error, see $log}"
fi
tests_of "test_cuda" '*CudaGemm*:*/gemm_*' "$tests" "--gtest_filter=$test_filter"
tests_of "test_e2e_cuda" '' "$prebuilt/bin/test_e2e_cuda" "--gtest_filter=$e2e_filter"
# The ranks share this GPU, which NCCL_HOSTID makes possible. Without NCCL the tests of ranks in test_cuda are skipped too.
if timeout 20 "${own[@]}" "$prebuilt/bin/qtrain" doctor 2>>"$log" | grep -Eq '^NCCL +[0-9]'; then
  tests_of "test_ranks" '' "$prebuilt/bin/test_e2e_cuda" "--gtest_filter=$ranks_filter"
else
  absent "test_ranks" "there is no NCCL (libnccl.so.2) of 2.18 or newer"
fi
if ! python3 -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
  absent "kernels" "PyTorch is not installed"
else
  part "kernels" "$(budget_of kernels)" "${own[@]}" python3 bench/peers/gpu_kernels.py --library "$library" \
    "${device[@]}" "${compiled[@]}" --seconds "$(scaled $((budgets["kernels"] - imports)))" --json "$work/kernels.json"
fi
part "qtrain bench" "$(budget_of "qtrain bench")" "${own[@]}" "$prebuilt/bin/qtrain" bench --device cuda "${bench[@]}" \
  --json "$work/bench.json"
for name in "${parts[@]}" "${rare[@]}"; do
  case "$name" in
    "step "*) step "${name#step }" ;;
    "attribution "*) attribution "${name#attribution }" ;;
  esac
done
# These share the remaining time.
kept=0
check memcheck $(((last_second - SECONDS) * 6 / 10)) "$quick_filter"
check racecheck $((last_second - SECONDS)) "$shared_filter"

[ "$dry" = 0 ] || say "This is a dry run: the figures below are for tiny sizes on a CPU and mean nothing."
python3 scripts/gpu_results.py --parts "$work" --output "$OUT/results.json" --command "$command_line" \
  --commit "$(cat "$prebuilt/commit" 2>/dev/null || git rev-parse HEAD 2>/dev/null || echo unknown)" --seconds "$SECONDS"
