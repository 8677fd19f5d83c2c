#!/usr/bin/env bash
# Builds qtrain, runs its tests and checks the format. The last line is "N passed, N failed, N skipped".
# Usage: scripts/test.sh [--no-install] [--checks] [--full]
#   --no-install  do not look for missing packages
#   --checks      also run what .ci/run checks: several GPUs and lost ranks (label long), readers of outside files under
#                 sanitizers, the GPU programs and their kernels under nvcc, the documentation site, clang-tidy
#   --full        all of that, and the slowest suites (label slow), everything under sanitizers, the planted mistakes, the
#                 cookbook, the kernels for every supported architecture, and clang-tidy on every file
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install=1
checks=0
full=0
for argument in "$@"; do
  case "$argument" in
    --no-install) install=0 ;;
    --checks) checks=1 ;;
    --full) checks=1 full=1 ;;
    -h | --help) sed -n '2,8s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) die "unknown option '$argument' (see --help)" ;;
  esac
done

passed=0
failed=0
skipped=0
failures=()
fail_check() {
  failed=$((failed + 1))
  failures+=("$1")
}
pass_check() { passed=$((passed + 1)); }
skip_check() {
  skipped=$((skipped + 1))
  say "skipped: $1"
}
# check NAME COMMAND...: runs a command that passes or fails as a whole.
check() {
  local name="$1"
  shift
  if run "$@"; then pass_check; else fail_check "$name"; fi
}

# suite NAME FOLDER CTEST_OPTION...: runs ctest and adds its counts.
suite() {
  local name="$1" folder="$2" report status=0 bad_before=$failed total
  shift 2
  report="$ROOT/$folder/junit-$name.xml"
  rm -rf "$report" "$ROOT/$folder/test_parts"
  # More jobs than processors, because some tests wait for a lost peer or for a reader.
  run ctest --test-dir "$folder" --output-on-failure --timeout 300 -j "$(($(nproc) + 2))" --output-junit "$report" "$@" || status=$?
  if [ ! -s "$report" ]; then
    fail_check "$name: no test ran"
    return
  fi
  total="$(cases_of "$report" | wc -l)"
  while IFS=$'\t' read -r outcome case; do
    case "$case" in
      *", part "*) count_part "$name" "$outcome" "$case" "$folder/test_parts/$case.xml" ;;
      *) count_case "$name" "$outcome" "$case" ;;
    esac
  done < <(cases_of "$report")
  if [ "$total" = 0 ] || { [ "$status" != 0 ] && [ "$failed" = "$bad_before" ]; }; then
    fail_check "$name: ctest ended with $status"
  fi
}
# count_case SUITE OUTCOME CASE: counts one test. Failures are listed again at the end, for logs of which only the end is
# kept.
count_case() {
  case "$2" in
    run | completed) passed=$((passed + 1)) ;;
    fail) fail_check "$1: $3" ;;
    *) skipped=$((skipped + 1)) ;;
  esac
}
# count_part SUITE OUTCOME PART REPORT: counts the tests of a program that ran in one process.
count_part() {
  local bad_before=$failed outcome case
  if [ -s "$4" ]; then
    while IFS=$'\t' read -r outcome case; do count_case "$1" "$outcome" "$case"; done < <(cases_of_part "$4")
  fi
  if [ "$2" = fail ] && [ "$failed" = "$bad_before" ]; then fail_check "$1: $3"; fi
}
one_line_a_case() { { tr '\n' ' ' <"$1" && echo; } | sed 's/<testcase /\n&/g'; }
# cases_of REPORT: for each test an outcome (run, completed, fail, or another word for skipped), a tab and its name.
cases_of() {
  one_line_a_case "$1" | sed -nE 's/^<testcase name="([^"]*)".* status="([^"]*)".*/\2\t\1/p'
}
cases_of_part() {
  one_line_a_case "$1" |
    sed -nE 's/^<testcase name="([^"]*)".* result="([^"]*)".* classname="([^"]*)"( \/>|>)(.*)/\2\t\3.\1\t\5/p' |
    sed -E 's/^completed\t([^\t]*)\t.*<failure .*/fail\t\1/; s/^([a-z]*\t[^\t]*)\t.*/\1/'
}

# section TITLE: begins a section. The time that each took is listed at the end, for logs of which only the end is kept.
sections=()
section_start=0
current_section=
end_section() {
  [ -z "$current_section" ] || sections+=("$(printf '%5d s  %s' "$((SECONDS - section_start))" "$current_section")")
}
section() {
  end_section
  current_section="$1"
  section_start=$SECONDS
  heading "$1"
}

finish() {
  trap - EXIT
  end_section
  heading "Result after $((SECONDS / 60)) min $((SECONDS % 60)) s"
  local name line
  for line in "${sections[@]}"; do say "$line"; done
  for name in ${failures[@]+"${failures[@]}"}; do say "failed: $name"; done
  say "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
}
# If something outside a check fails (an install, a configure), it counts as a failure, and the last line is still printed.
broke() {
  fail_check "the script stopped at: $BASH_COMMAND"
  finish
}
trap 'broke' EXIT

if [ "$install" = 1 ]; then
  section "What the build and the checks need"
  packages=(--dev)
  [ "$checks" = 0 ] || packages+=(--docs)
  run scripts/install_deps.sh "${packages[@]}"
fi
choose_compiler

# The CPU backend, and the CUDA backend with its kernels executed on the CPU.
section "Build"
configure emulated
check "build" cmake --build --preset emulated

section "Tests"
# The tests labeled unit and golden run as parts (see qtrain_discover).
left='^(unit|unit_readers|golden)$'
[ "$full" = 1 ] || left+='|slow'
[ "$checks" = 1 ] || left+='|long'
suite all build/emulated -C parts -LE "$left"

# Whole runs use the CPU's fastest instruction set; here they are repeated with each one that it supports. A few such tests
# are part of every run.
if [ "$full" = 1 ]; then
  while IFS='|' read -r isa part; do
    section "Whole runs on $isa"
    if build/emulated/bin/qtrain doctor | grep -q "^$part  *yes"; then
      QTRAIN_CPU_ISA="$isa" suite "e2e-$isa" build/emulated -L e2e
    else
      skip_check "this processor has no $isa: whole runs on it"
    fi
  done <<<"avx2|AVX2 + FMA
avx512|AVX-512
avx512_bf16|bfloat16 dot products"
fi

section "Scripts"
if command -v python3 >/dev/null; then
  for test in tests/scripts/*_test.py; do check "$(basename "$test")" python3 "$test"; done
else
  skip_check "python3 is not installed: tests/scripts"
fi

section "Format"
mapfile -t sources < <(find core hub kernels emulator quant text data optim dist model config train report plan convert bench monitor app examples tests \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' \) 2>/dev/null | sort)
if command -v clang-format >/dev/null; then
  say "\$ clang-format --dry-run -Werror (${#sources[@]} files)"
  if printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -n 50 clang-format --dry-run -Werror; then pass_check; else fail_check "clang-format"; fi
else
  skip_check "clang-format is not installed"
fi

# The rest takes too long to run before every commit.
if [ "$checks" = 0 ]; then finish; exit; fi

# The parsers of JSON, safetensors, GGUF, tokenizers, templates and data files; with --full, everything.
section "Tests under the address and undefined-behavior sanitizers"
configure asan
sanitized=(readers test_core test_text test_data)
[ "$full" = 0 ] || sanitized=(unit unit_tests)
check "sanitizer build" cmake --build --preset asan --target "${sanitized[@]:1}"
# Only with --full: tests that take minutes without optimization (every Unicode character, templates up to their step
# limit), and tests of results or time that access the same memory as other tests.
long='UnicodeClasses|Dropout.IsAnotherInEachChunkOfTheHead|Template.(HostileTemplatesEnd|WorkIsCounted|CallsOfMacros)|SameBitsForAnyNumberOfThreads|LongWordsTakeLittleTime|LargeObjectsTakeLinearTime|ManyNamesTakeLittleTime|TimeGrowsWithTheFile|AreNotLookedForInEndlessConversations|LongConversationsAreCheckedInTime'
[ "$full" = 0 ] || long='^$'
suite asan build/asan -L "${sanitized[0]}" -LE slow -E "$long|^test_style"

# The kernels and the host code that launches them, with sanitizers in place of the harness's own checks. Of the tests of
# whole runs, only the training curves.
if [ "$full" = 1 ]; then
  for sanitizer in asan tsan; do
    section "CUDA backend under the harness, with $sanitizer"
    configure "emulated-$sanitizer"
    check "emulated-$sanitizer build" cmake --build --preset "emulated-$sanitizer" --target test_harness test_cuda test_e2e_cuda
    # Leaks are not reported: when a kernel is stopped, its threads do not release their memory.
    ASAN_OPTIONS=detect_leaks=0 suite "emulated-$sanitizer" "build/emulated-$sanitizer" -L harness -LE slow --timeout 900 \
      -E 'Cuda(Run|Offload|Estimate|Bench)|Float16Run'
  done
fi

# Planted mistakes, each with the tests that must detect it.
if [ "$full" = 1 ]; then
  section "Planted mistakes"
  check "planted mistakes" tests/mutants/run.py
fi

# Real training jobs that must reach the figures in their limits.txt; the model is downloaded.
if [ "$full" = 1 ]; then
  section "Cookbook"
  check "cookbook" scripts/cookbook.sh --no-install --bin build/emulated/bin
fi

# Prepares for a machine with a GPU: builds the programs with nvcc and checks their size, then runs the GPU suite in tiny
# sizes on the CPU. Then checks every kernel as nvcc compiles it: warnings, spills and resources.
section "CUDA kernels under nvcc"
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  prebuild=(--quick build/prebuilt-quick)
  resources=(--arch 90a --build_log build/gpu-quick/build.log)
  kept=(--kept build/gpu-quick/ptx)
  [ "$full" = 0 ] || prebuild=(build/prebuilt) resources=() kept=()
  check "programs for a GPU" scripts/gpu_prebuild.sh "${prebuild[@]}"
  check "GPU suite on the processor" scripts/gpu_suite.sh --dry-run --prebuilt build/emulated
  check "kernel resources" scripts/kernel_resources.py --check ${resources[@]+"${resources[@]}"}
  check "compiled kernels" scripts/ptx_tests.py ${kept[@]+"${kept[@]}"}
  if [ "$full" = 1 ]; then
    check "all tests of compiled kernels" scripts/ptx_tests.py --all
    for architecture in 75 80 120; do check "compiled kernels" scripts/ptx_tests.py --arch $architecture; done
  fi
else
  skip_check "nvcc is not installed: the kernels are not compiled for GPUs"
fi

# Fails for broken links, pages that are in no section of the site, and Doxygen warnings.
section "Documentation site"
if command -v mkdocs >/dev/null && command -v doxygen >/dev/null; then
  check "documentation site" make -s -f Makefile.docs
else
  skip_check "mkdocs or doxygen is not installed: the documentation site"
fi

# The slowest checks run only with --full.
section "clang-tidy"
commands=build/emulated/tidy  # g++'s commands without precompiled headers, which only g++ can read
mkdir -p "$commands"
sed -E 's# -Winvalid-pch -include [^ ]*/cmake_pch\.hxx##' build/emulated/compile_commands.json >"$commands/compile_commands.json"
folders="core|examples"
checks="-bugprone-suspicious-include,-clang-analyzer-*"  # the first one objects to unity builds
if [ "$full" = 1 ]; then
  folders="core|hub|kernels|quant|text|data|optim|dist|model|config|train|report|plan|convert|bench|monitor|app|examples"
  checks="-bugprone-suspicious-include"
fi
mapfile -t tidied < <(sed -nE "s#^ *\"file\": \"($ROOT/(build/emulated/)?($folders)/.*\.c(pp|xx))\".*#\1#p" \
  "$commands/compile_commands.json" | grep -v /cmake_pch | sort -u)
if command -v clang-tidy >/dev/null; then
  say "\$ clang-tidy -p $commands --quiet --checks=$checks (${folders//|/, })"
  if printf '%s\n' "${tidied[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$commands" --quiet "--checks=$checks"; then
    pass_check
  else
    fail_check "clang-tidy"
  fi
else
  skip_check "clang-tidy is not installed"
fi

finish
