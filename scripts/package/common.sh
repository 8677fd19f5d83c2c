# Shared by the scripts of this folder; read with `source`, not run.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

WORK="$ROOT/build/package"
PREFIX="$WORK/prefix"       # the static libraries
TOOLS="$WORK/tools"         # compiler and archiver for the oldest C library that is promised
SOURCES="$WORK/sources"     # archives; those that lie here are not fetched
LICENSES="$WORK/licenses"   # of all that is linked
VENV="$WORK/venv"
GLIBC=2.28                  # manylinux_2_28
ZIG=0.17.1
AUDITWHEEL=6.8.2
JOBS="${JOBS:-$(nproc)}"

# libraries: rows of sources.txt without its heading.
libraries() { grep -v '^#' "$ROOT/scripts/package/sources.txt"; }

# python_tool PACKAGE==VERSION: a package from PyPI that is needed to build alone.
python_tool() {
  [ -x "$VENV/bin/python" ] || run python3 -m venv "$VENV"
  [ "$("$VENV/bin/python" -m pip list --format=freeze 2>/dev/null | grep -cxF "$1")" = 1 ] ||
    run "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "$1"
}
