#!/bin/sh
# Say before anything is installed that MLX's wheels do not run on this system, and what does.
# usage: mlx_runs_here.sh GOAL   On Linux they need glibc 2.35. Plain POSIX sh, for a machine that has nothing yet.
set -eu

[ "$(uname -s 2>/dev/null)" = Linux ] || exit 0
version=$(getconf GNU_LIBC_VERSION 2>/dev/null) || version="glibc none"
version=${version#glibc }
case $version in
  none | 2.? | 2.[0-2]? | 2.3[0-4]) ;;
  *) exit 0 ;;
esac
printf 'make %s: %s\n' "$1" "MLX needs glibc 2.35 or newer on Linux (Debian 12, Ubuntu 22.04), found $version; what asks \
another machine runs here, with git 2.36 or newer: make requester" >&2
exit 1
