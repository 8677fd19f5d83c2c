#!/usr/bin/env bash
# Writes the fenced blocks of a documentation page to FOLDER/NAME.1, NAME.2, ... where NAME is the page's file name without .md.
# Usage: scripts/package/page_blocks.sh PAGE.md FOLDER
set -euo pipefail
awk -v file="$2/$(basename "$1" .md)" '
  /^```/ { open = !open; if (open) ++n; next }
  open { print > (file "." n) }' "$1"
