#!/usr/bin/env bash
# Fails if a program needs a newer C library than promised, or any other library.
# Usage: scripts/package/check_symbols.sh PROGRAM [GLIBC_VERSION]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
program="${1:?a program}"
promised="${2:-$GLIBC}"

allowed='^(libc\.so\.6|libm\.so\.6|libpthread\.so\.0|libdl\.so\.2|librt\.so\.1|libutil\.so\.1|libresolv\.so\.2|ld-linux-x86-64\.so\.2)$'
others="$(objdump -p "$program" | awk '$1 == "NEEDED" { print $2 }' | grep -vE "$allowed" || true)"
[ -z "$others" ] || die "$program needs $(tr '\n' ' ' <<<"$others")"
versions="$(objdump -T "$program" | grep -oE 'GLIBC_[0-9.]+' | sort -uV)"
[ -n "$versions" ] || die "$program has no versioned symbol: is it a dynamic program for glibc?"
newest="$(tail -n 1 <<<"${versions//GLIBC_/}")"
[ "$(printf '%s\n' "$newest" "$promised" | sort -V | tail -n 1)" = "$promised" ] ||
  die "$program needs glibc $newest, and $promised is promised"
say "$program needs glibc $newest or newer and no other library ($promised is promised)"
