#!/bin/sh
# Make a virtual environment with Python 3.11 or newer, or mend one that an interrupted installation left; then install.
# usage: environment.sh GOAL FOLDER PYTHON [PIP ARGUMENT ...]   PYTHON may be empty: then one is looked for on PATH.
# Knows nothing about what is installed. Plain POSIX sh, for a machine that has nothing yet.
set -eu

goal=$1 folder=$2 given=$3
shift 3
marker=$folder/.installing # there while pip works: where it stays, pip was interrupted half-way
NAMES="python3 python3.13 python3.12 python3.11 python3.14"
TAKE_LOCK='import fcntl
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    raise SystemExit(1)
except OSError:
    pass # a file system without locks
'
NEW_ENOUGH='import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))'

die() {
  printf 'make %s: %s\n' "$goal" "$1" >&2
  exit 1
}

# Print the version of an interpreter; fail where it is older than 3.11 or does not start.
new_enough() {
  "$1" -c "$NEW_ENOUGH" 2>/dev/null
}

# Print what to type where this system's own packages hold a Python that is new enough: Debian 12, Ubuntu 24.04.
packaged() {
  case $(apt-cache policy python3 2>/dev/null) in
    *Candidate:\ 3.[0-9].* | *Candidate:\ 3.10.*) ;;
    *Candidate:\ 3.*) echo "sudo apt-get install python3-venv" ;;
  esac
}

# Debian and Ubuntu keep the module that puts pip into an environment in a package of its own.
makes_environments() {
  "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

need_venv() {
  name=${1##*/}
  if command -v apt-get >/dev/null 2>&1; then
    die "$1 cannot make environments: sudo apt-get install $name-venv, then make $goal again"
  fi
  die "$1 cannot make environments (no venv or ensurepip): install a whole Python, then make $goal PYTHON=python3.13"
}

# Set `python`, or say what was found and what to do.
find_python() {
  if [ -n "$given" ]; then
    if version=$(new_enough "$given"); then
      makes_environments "$given" || need_venv "$given"
      python=$given
      return
    fi
    die "needs Python 3.11 or newer, and $given is ${version:-not there}: make $goal PYTHON=python3.13"
  fi
  old="" bare=""
  for name in $NAMES; do
    if version=$(new_enough "$name"); then
      if makes_environments "$name"; then
        python=$name
        return
      fi
      bare=${bare:-$name}
    else
      old=${old:-$version}
    fi
  done
  [ -z "$bare" ] || need_venv "$bare"
  package=$(packaged)
  [ -z "$package" ] || die "needs Python 3.11 or newer, found ${old:-none}: $package, then make $goal again"
  die "needs Python 3.11 or newer, found ${old:-none}: install one (brew install python@3.13, uv python install 3.13), \
then make $goal PYTHON=python3.13"
}

# Let nobody else write into the folder until this ends: a pip whose make was killed goes on, and holds the lock too.
alone() {
  exec 9>>"$folder.lock"
  "$python" -c "$TAKE_LOCK" >/dev/null || {
    echo "another installation into $folder goes on: waiting for its end"
    "$python" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)' >/dev/null
  }
}

# Print what is wrong with the environment that is there; nothing where it is whole.
fault() {
  if [ -e "$marker" ]; then
    echo "its last installation was interrupted"
  elif ! version=$(new_enough "$folder/bin/python"); then
    echo "its Python is ${version:-not there}"
  elif ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "it has no pip"
  fi
}

if [ -e "$folder" ] || [ -L "$folder" ]; then
  why=$(fault)
  if [ -n "$why" ]; then
    [ -f "$folder/pyvenv.cfg" ] || [ -e "$marker" ] || rmdir "$folder" 2>/dev/null ||
      die "$folder is there and is no virtual environment: move it away"
    find_python
    alone
    echo "$folder cannot be used ($why): made anew with $python"
    rm -rf "$folder" || die "$folder cannot be removed: sudo rm -rf $folder, then make $goal again"
  fi
fi
if [ ! -e "$folder" ]; then
  [ -n "${python:-}" ] || find_python
  alone
  mkdir "$folder"
  : >"$marker"
  "$python" -m venv "$folder" || die "$python could not make $folder; what it said stands above; make $goal again makes it anew"
fi
if [ $# -gt 0 ]; then
  echo "installing into $folder with Python $(new_enough "$folder/bin/python")"
  : >"$marker"
  trap 'exit 130' HUP INT TERM
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || failed=$?
fi
if [ "${failed:-0}" -gt 128 ]; then
  die "the installation was ended by signal $((failed - 128)): make $goal again makes $folder anew"
fi
rm -f "$marker"
exit "${failed:-0}"
