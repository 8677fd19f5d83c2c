# Shared by the scripts of this folder; read with `source`, not run.
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

# The compiler: CXX where it is set, else g++, or a g++-12 beside an older g++.
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

# configure PRESET [CMAKE_OPTION...]: configures build/PRESET for a build from nothing; a build folder moved here from another place is made anew.
configure() {
  local cache="build/$1/CMakeCache.txt"
  if [ -f "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$ROOT" "$cache"; then
    run rm -rf "build/$1"
  fi
  run cmake --preset "$@" -DQTRAIN_UNITY=ON
}
