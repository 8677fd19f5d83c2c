# Shared by the scripts of this folder; read with `source`, not run.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

# package_options HELP_LINES ARGUMENT...: what is packaged, cpu unless another kind is named, and where its parts lie.
#   cpu     the CPU backend, by clang and libc++ of ziglang, whose targets are old versions of glibc
#   cuda    both backends, by g++ and nvcc of this machine, which take its own glibc but for what glibc_compat.c holds
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
  LICENSES="$WORK/licenses"    # of all that is linked
  SUFFIX=""                    # of what users get
  [ "$KIND" = cpu ] || SUFFIX="-$KIND"
  PRESET="portable$SUFFIX"
}

PACKAGES="$ROOT/build/package"
SOURCES="$PACKAGES/sources"  # archives; those that lie here are not fetched
OUT="$PACKAGES/out"          # what users get
VENV="$PACKAGES/venv"
ZIG=0.17.1
AUDITWHEEL=6.8.2
CUDART=13.0.96  # whose license is that of the runtime in nvcc's folder, which is linked
JOBS="${JOBS:-$(nproc)}"

# libraries: rows of sources.txt without its heading.
libraries() { grep -v '^#' "$ROOT/scripts/package/sources.txt"; }

# python_tool PACKAGE==VERSION: a package from PyPI that is needed to build alone.
python_tool() {
  [ -x "$VENV/bin/python" ] || run python3 -m venv "$VENV"
  [ "$("$VENV/bin/python" -m pip list --format=freeze 2>/dev/null | grep -cxF "$1")" = 1 ] ||
    run "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$1"
}
