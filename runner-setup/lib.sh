# shellcheck shell=bash
# shellcheck disable=SC2034  # the two scripts read what is set here
# What both set-up scripts share: options, the act/dry-run door, and the steps that do not differ between systems.
# Knows nothing about launchd or systemd. Every step first looks, then acts, so running it twice changes nothing.

set -euo pipefail

KAKEYA_LABEL=kakeya-runner
MODE=install # install | dry-run | check | uninstall
ROOT=""      # every system path is below it; empty means the real system
NAME=""
BUS=""
PYTHON=""
PACKAGE=kakeya
EXTRAS=""
LABELS=""
JOB_USER=kakeya-job
RUN_USER=kakeya-runner
MODELS=""
ACTIONS_URL=""
ACTIONS_ARCHIVE=""
ACTIONS_SHA256=""
ACTIONS_TOKEN_FILE=""
SSH_KEY_FILE=""
SERVICE_MANAGER=""
CONSTRAINTS=""
CHANGED=0
PROBLEMS=0

usage() {
  cat <<TXT
usage: $(basename "$0") --bus ROUTE [options]

Make this machine a Kakeya runner: own Python environment, own users, policy with safe defaults, a service that survives a
reboot. Running it again changes nothing that is already right.

  --bus ROUTE             the git remote to serve (ssh, https or a path)
  --name NAME             the runner's name (default: the host's name)
  --python PATH           the interpreter to pin, 3.11 or newer (default: the newest one found)
  --package SPEC          what pip installs: a wheel, a folder or a requirement (default: kakeya)
  --constraints FILE      pip constraints for a reproducible environment
  --extras A,B            extras of the package, empty for none (default: mlx on a Mac, torch on Linux)
  --labels A,B            labels that requests may select
  --models DIR            model folder, read-only for runs
  --ssh-key FILE          public key allowed to send requests over ssh (forced command)
  --actions-url URL       also register a GitHub Actions runner for this repository; needs the next three:
  --actions-archive FILE    its downloaded archive
  --actions-sha256 HEX      the checksum GitHub publishes for it
  --actions-token-file F    file with the registration token, - for standard input; never an argument
  --dry-run               print what would be done, in order; change nothing
  --check                 say what is right and what is not; exit 1 when something is not
  --uninstall             take away everything this script made, runs and keys included
  --root DIR              install below this folder instead of /
  --service-manager CMD   use this instead of the system's own service manager
TXT
}

die() {
  printf 'error: %s\n' "$1" >&2
  [ $# -lt 2 ] || printf '  next: %s\n' "$2" >&2
  exit 2
}

parse_options() {
  while [ $# -gt 0 ]; do
    case "$1" in
      --dry-run) MODE=dry-run ;;
      --check) MODE=check ;;
      --uninstall) MODE=uninstall ;;
      -h | --help) usage && exit 0 ;;
      --bus | --name | --python | --package | --constraints | --extras | --labels | --models | --ssh-key | --actions-url | --actions-archive | \
        --actions-sha256 | --actions-token-file | --root | --service-manager)
        [ $# -ge 2 ] || die "$1 needs a value" "$(basename "$0") --help"
        set_option "$1" "$2"
        shift
        ;;
      *) die "unknown option $1" "$(basename "$0") --help" ;;
    esac
    shift
  done
}

set_option() {
  case "$1" in
    --bus) BUS=$2 ;;
    --name) NAME=$2 ;;
    --python) PYTHON=$2 ;;
    --package) PACKAGE=$2 ;;
    --constraints) CONSTRAINTS=$2 ;;
    --extras) EXTRAS=$2 ;;
    --labels) LABELS=$2 ;;
    --models) MODELS=$2 ;;
    --ssh-key) SSH_KEY_FILE=$2 ;;
    --actions-url) ACTIONS_URL=$2 ;;
    --actions-archive) ACTIONS_ARCHIVE=$2 ;;
    --actions-sha256) ACTIONS_SHA256=$2 ;;
    --actions-token-file) ACTIONS_TOKEN_FILE=$2 ;;
    --root) ROOT=${2%/} ;;
    --service-manager) SERVICE_MANAGER=$2 ;;
  esac
}

# act "what for people" command args…: the only place that changes anything
act() {
  local what=$1
  shift
  if [ "$MODE" = dry-run ]; then
    printf 'would  %s\n' "$what"
  else
    printf 'do     %s\n' "$what"
    "$@"
  fi
  CHANGED=$((CHANGED + 1))
}

right() { printf 'ok     %s\n' "$1"; }

# wrong "what" "repair": a finding of --check
wrong() {
  printf 'WRONG  %s\n       repair: %s\n' "$1" "$2"
  PROBLEMS=$((PROBLEMS + 1))
}

write_file() { # mode path, text on standard input; whole or not at all
  local mode=$1 path=$2 partial
  partial="$path.partial"
  (umask 077 && cat >"$partial")
  chmod "$mode" "$partial"
  mv -f "$partial" "$path"
}

same_content() { [ -f "$1" ] && printf '%s\n' "$2" | cmp -s - "$1"; }

ensure_file() { # what mode path text
  local what=$1 mode=$2 path=$3 text=$4
  if same_content "$path" "$text"; then
    right "$what"
  elif [ "$MODE" = check ]; then
    wrong "$what: $path is missing or differs" "run this script again without --check"
  else
    act "write $what: $path" write_file "$mode" "$path" <<<"$text"
  fi
}

ensure_folder() { # what mode path
  local what=$1 mode=$2 path=$3
  if [ -d "$path" ] && [ "$(stat_mode "$path")" = "$mode" ]; then
    right "$what"
  elif [ "$MODE" = check ]; then
    wrong "$what: $path is missing or not mode $mode" "run this script again without --check"
  else
    act "make $what: $path ($mode)" install -d -m "$mode" "$path"
  fi
}

stat_mode() { stat -c %a "$1" 2>/dev/null || stat -f %Lp "$1"; }

find_python() {
  local candidate
  if [ -n "$PYTHON" ]; then
    python_ok "$PYTHON" || die "$PYTHON is not Python 3.11 or newer" "pass --python with an absolute path"
    return
  fi
  for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
    candidate=$(command -v "$candidate" 2>/dev/null) || continue
    if python_ok "$candidate"; then
      PYTHON=$candidate
      return
    fi
  done
  die "no Python 3.11 or newer found" "install one, then pass --python with its absolute path"
}

python_ok() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

pin_python() { # an upgrade that moves `python3` must not change what runs: resolve to the real file
  PYTHON=$("$PYTHON" -c 'import os, sys; print(os.path.realpath(sys.executable))')
  right "interpreter pinned: $PYTHON"
}

ensure_environment() { # prefix
  local prefix=$1 spec=$PACKAGE
  [ -z "$EXTRAS" ] || spec="${PACKAGE}[${EXTRAS}]"
  if "$prefix/bin/python" -I -c "import bridge" 2>/dev/null && "$prefix/bin/kakeya-runner" --help >/dev/null 2>&1; then
    right "environment: $prefix"
  elif [ "$MODE" = check ]; then
    wrong "environment: $prefix/bin/kakeya-runner does not run" "run this script again without --check"
  else
    act "make the environment $prefix with $PYTHON" "$PYTHON" -m venv "$prefix"
    act "install $spec" install_package "$prefix" "$spec"
  fi
}

install_package() {
  local options=(--quiet --disable-pip-version-check)
  [ -z "$CONSTRAINTS" ] || options+=(-c "$CONSTRAINTS")
  "$1/bin/python" -m pip install "${options[@]}" "$2"
}

policy_text() { # interpreter
  local labels=""
  [ -z "$LABELS" ] || labels="\"${LABELS//,/\", \"}\""
  cat <<TXT
# What strangers who can push to the bus may run here. Only this file decides; \`kakeya-runner policy check\` explains it.
schema = 1
name = "$NAME"
labels = [$labels]
interpreter = "$1"
model_roots = [$([ -z "$MODELS" ] || printf '"%s"' "$MODELS")]
trust_pushers = false

[presets]
allow = ["*-env-probe", "k3-*"]

[sandbox]
mode = "$SANDBOX_MODE"
TXT
}

ensure_policy() { # path interpreter
  local path=$1
  if [ -f "$path" ]; then
    if [ "$(stat_mode "$path")" = 600 ]; then
      right "policy: $path (yours to edit; left as it is)"
    elif [ "$MODE" = check ]; then
      wrong "policy: $path is readable by others (mode $(stat_mode "$path"))" "chmod 600 $path"
    else
      act "close the policy to others: $path" chmod 600 "$path"
    fi
  elif [ "$MODE" = check ]; then
    wrong "policy: $path is missing; the runner will not serve without one" "run this script again without --check"
  else
    act "write the policy with safe defaults: $path (600)" write_file 600 "$path" < <(policy_text "$2")
  fi
}

verify_checksum() { # file sha256
  local got
  got=$( (sha256sum "$1" 2>/dev/null || shasum -a 256 "$1") | cut -d' ' -f1)
  [ "$got" = "$2" ] || die "checksum of $1 is $got, expected $2" "download it again from the page that published the checksum"
}

read_token() { # from a file or standard input, never from the command line, where every user of the host sees it
  if [ "$ACTIONS_TOKEN_FILE" = - ]; then
    IFS= read -r ACTIONS_TOKEN
  else
    [ "$(stat_mode "$ACTIONS_TOKEN_FILE")" = 600 ] || die "$ACTIONS_TOKEN_FILE is readable by others" "chmod 600 $ACTIONS_TOKEN_FILE"
    IFS= read -r ACTIONS_TOKEN <"$ACTIONS_TOKEN_FILE"
  fi
  [ -n "$ACTIONS_TOKEN" ] || die "the registration token is empty" "get one from the repository's Settings, Actions, Runners"
}

ensure_actions_runner() { # folder
  local folder=$1
  [ -n "$ACTIONS_URL" ] || return 0
  if [ -f "$folder/.runner" ]; then
    right "Actions runner: $folder"
    return
  elif [ "$MODE" = check ]; then
    wrong "Actions runner: $folder is not registered" "run this script again with the --actions options"
    return
  fi
  [ -f "$ACTIONS_ARCHIVE" ] || die "no Actions runner archive at '$ACTIONS_ARCHIVE'" "download it and pass --actions-archive and --actions-sha256"
  verify_checksum "$ACTIONS_ARCHIVE" "$ACTIONS_SHA256"
  act "unpack the Actions runner: $folder" unpack "$ACTIONS_ARCHIVE" "$folder"
  act "register it for $ACTIONS_URL with label $KAKEYA_LABEL" register_actions_runner "$folder"
}

unpack() {
  install -d -m 750 "$2"
  tar -xzf "$1" -C "$2"
}

register_actions_runner() {
  read_token
  (cd "$1" && ACTIONS_RUNNER_INPUT_TOKEN=$ACTIONS_TOKEN ./config.sh --unattended --url "$ACTIONS_URL" --name "$NAME" --labels "$KAKEYA_LABEL")
}

ensure_ssh_access() { # authorized_keys runner-command
  [ -n "$SSH_KEY_FILE" ] || return 0
  local line
  line="restrict,command=\"$2 exec\" $(cat "$SSH_KEY_FILE")"
  if [ -f "$1" ] && grep -qxF "$line" "$1"; then
    right "ssh access: forced command in $1"
  elif [ "$MODE" = check ]; then
    wrong "ssh access: the forced command is missing in $1" "run this script again with --ssh-key"
  else
    act "allow requests over ssh, forced command only: $1" append_line "$1" "$line"
  fi
}

append_line() {
  install -d -m 700 "$(dirname "$1")"
  touch "$1"
  chmod 600 "$1"
  printf '%s\n' "$2" >>"$1"
}

remove_path() {
  if [ -e "$1" ] || [ -L "$1" ]; then
    act "remove $1" rm -rf "$1"
  fi
}

finish() {
  case "$MODE" in
    check)
      [ "$PROBLEMS" -eq 0 ] && printf 'all right\n' && exit 0
      printf '%s problem(s)\n' "$PROBLEMS"
      exit 1
      ;;
    dry-run) printf '%s change(s) would be made\n' "$CHANGED" ;;
    *) printf '%s change(s) made\n' "$CHANGED" ;;
  esac
}
