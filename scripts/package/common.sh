# Functions for the scripts in this folder, which include it with `source`.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

# package_options HELP_LINES ARGUMENT...: parses the kind of package (default: cpu) and sets its folders.
#   cpu     the CPU backend, built with ziglang's clang and libc++, which can target old versions of glibc
#   cuda    both backends, built with this machine's g++ and nvcc against its glibc, except for functions in glibc_compat.c
package_options() {
  local lines="$1"
  shift
  case "${1:-cpu}" in
    cpu) GLIBC=2.28 ;;   # manylinux_2_28
    cuda) GLIBC=2.35 ;;  # Ubuntu 22.04
    -h | --help) sed -n "${lines}s/^# //p" "$0" && exit 0 ;;
    *) die "unknown option '$1' (see --help)" ;;
  esac
  KIND="${1:-cpu}"
  WORK="$ROOT/build/package/$KIND"
  PREFIX="$WORK/prefix"        # the static libraries
  TOOLS="$WORK/tools"          # compiler and archiver
  LICENSES="$WORK/licenses"    # licenses of everything that is linked
  SUFFIX=""                    # suffix of the packages' names
  [ "$KIND" = cpu ] || SUFFIX="-$KIND"
  PRESET="portable$SUFFIX"
}

PACKAGES="$ROOT/build/package"
SOURCES="$PACKAGES/sources"  # source archives; those in this folder are not downloaded again
OUT="$PACKAGES/out"          # the finished packages
VENV="$PACKAGES/venv"
ZIG=0.17.1
AUDITWHEEL=6.8.2
CUDART=13.0.96  # its license also applies to the runtime in nvcc's folder, which is linked
JOBS="${JOBS:-$(nproc)}"

# libraries: prints the rows of sources.txt without its heading.
libraries() { grep -v '^#' "$ROOT/scripts/package/sources.txt"; }

# python_tool PACKAGE==VERSION: installs a PyPI package that only the build needs.
python_tool() {
  [ -x "$VENV/bin/python" ] || run python3 -m venv "$VENV"
  [ "$("$VENV/bin/python" -m pip list --format=freeze 2>/dev/null | grep -cxF "$1")" = 1 ] ||
    run "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$1"
}
