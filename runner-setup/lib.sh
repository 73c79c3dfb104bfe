# shellcheck shell=bash
# shellcheck disable=SC2034  # the two scripts read what is set here
# What both set-up scripts share: options, the act/dry-run door, and the steps that do not differ between systems.
# Knows nothing about launchd or systemd. Every step first looks, then acts, so running it twice changes nothing.
# What was made is written down beside the policy (setup.tsv), so that `kakeya-runner doctor` makes the same checks.

set -euo pipefail

KAKEYA_LABEL=kakeya-runner
MODE=install # install | dry-run | check | uninstall
ROOT=""      # every system path is below it; empty means the real system
NAME=""
BUS=""
PYTHON=""
PACKAGE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) # the clone that this script lies in
EXTRAS=""
LABELS=""
RUN_USER=kakeya-runner # serves the bus: owns policy, state, key and push credential
JOB_USER=kakeya-job    # the runs' user with --job-user; otherwise each run is a user of its own
ACTIONS_USER=kakeya-actions # jobs of GitHub Actions: may read none of the above
WITH_JOB_USER=no
CREATE_BUS=no
MODELS=""
ACTIONS_URL=""
ACTIONS_ARCHIVE=""
ACTIONS_SHA256=""
ACTIONS_TOKEN_FILE=""
SSH_KEY_FILE=""
SSH_FROM=""
RUN_SOCKET="" # where a service manager makes a process and a user for each run; none on a Mac
RECEIPT=""
TAB=$'\t'
SERVICE_MANAGER=""
OWN_PATHS=() # what this script makes and takes away; no link among them is followed
ALLOW='"*-env-probe", "k3-*"'
DEVICES=""
CONSTRAINTS=""
LOCKED_EXTRAS="" # the extras whose packages the lock pins by digest
LOCK=""
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
  --package SPEC          what pip installs: a wheel, a folder or a requirement (default: this clone)
  --extras A,B            extras of the package, empty for none (default: as the lock beside this script, by digest:
                          mlx,github on a Mac, torch,github on Linux); others need:
  --constraints FILE      pip constraints, instead of the lock
  --labels A,B            labels that requests may select
  --models DIR            model folder, read-only for runs
  --create-bus            make the remote a bus if it is none yet
  --job-user              every run is the user kakeya-job, to whom you may give files, instead of a new user each; on Linux
  --ssh-key FILE          public key allowed to send requests over ssh (forced command)
  --ssh-from PATTERNS     only from these addresses, such as a tailnet: 100.64.0.0/10,fd7a:115c:a1e0::/48
  --actions-url URL       let GitHub Actions wake this machine, instead of polling; needs the next three:
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
      --job-user) WITH_JOB_USER=yes ;;
      --create-bus) CREATE_BUS=yes ;;
      -h | --help) usage && exit 0 ;;
      --bus | --name | --python | --package | --constraints | --extras | --labels | --models | --ssh-key | --ssh-from | --actions-url | --actions-archive | \
        --actions-sha256 | --actions-token-file | --root | --service-manager)
        [ $# -ge 2 ] || die "$1 needs a value" "$(basename "$0") --help"
        set_option "$1" "$2"
        shift
        ;;
      *) die "unknown option $1" "$(basename "$0") --help" ;;
    esac
    shift
  done
  case "$MODE" in install | dry-run) ;; *) return 0 ;; esac
  [ -n "$CONSTRAINTS" ] || [ "$EXTRAS" = "$LOCKED_EXTRAS" ] \
    || die "--extras ${EXTRAS:-''}: the lock beside this script has the packages of $LOCKED_EXTRAS only" "leave --extras out, or give --constraints FILE"
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
    --ssh-from) SSH_FROM=$2 ;;
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
  refuse_link "$path"
  partial=$(umask 077 && mktemp "$path.XXXXXX") # a new file of ours: nobody can have put a link there
  cat >"$partial"
  chmod "$mode" "$partial"
  mv -f "$partial" "$path"
}

# Into a folder of another user's, who could put a link in our way at any moment: that user writes it.
write_file_as() { # user mode path, text on standard input
  if [ "$1" = root ] || [ -n "$ROOT" ]; then
    write_file "$2" "$3"
    return
  fi
  refuse_link "$3"
  # shellcheck disable=SC2016  # the inner shell expands its own arguments
  as_user "$1" sh -c 'umask 077 && part=$(mktemp "$2.XXXXXX") && cat >"$part" && chmod "$1" "$part" && mv -f "$part" "$2"' sh "$2" "$3"
}

same_content() { [ -f "$1" ] && printf '%s\n' "$2" | cmp -s - "$1"; }

# remember kind what path value…: one line of the receipt that `kakeya-runner doctor` goes through
remember() {
  local IFS=$TAB
  RECEIPT+="$*"$'\n'
}

digest() { (sha256sum 2>/dev/null || shasum -a 256) | cut -d' ' -f1; }

digest_of() { digest <"$1"; }

# owned user path…: below --root there are no users to own anything
owned() {
  local user=$1
  shift
  [ -n "$ROOT" ] || chown -h "$user" "$@"
}

owner_right() { [ -n "$ROOT" ] || [ "$(stat_owner "$2")" = "$1" ]; }

stat_owner() { stat -c %U "$1" 2>/dev/null || stat -f %Su "$1"; }

stat_group() { stat -c %G "$1" 2>/dev/null || stat -f %Sg "$1"; }

ensure_file() { # what mode path text
  local what=$1 mode=$2 path=$3 text=$4
  remember file "$what" "$path" "$mode" "$(printf '%s\n' "$text" | digest)"
  if same_content "$path" "$text" && [ "$(stat_mode "$path")" = "$mode" ]; then
    right "$what"
  elif [ "$MODE" = check ]; then
    wrong "$what: $path is missing or differs" "run this script again without --check"
  else
    act "write $what: $path" write_file "$mode" "$path" <<<"$text"
    [ "$MODE" != dry-run ] || printf '%s\n' "$text" | sed 's/^/       | /'
  fi
}

ensure_folder() { # what mode path user
  local what=$1 mode=$2 path=$3 user=$4
  remember folder "$what" "$path" "$mode" "$user"
  if [ -d "$path" ] && [ "$(stat_mode "$path")" = "$mode" ] && owner_right "$user" "$path"; then
    right "$what"
  elif [ "$MODE" = check ]; then
    wrong "$what: $path is missing, not mode $mode, or not $user's" "run this script again without --check"
  else
    act "make $what: $path ($mode, $user)" make_folder "$mode" "$path" "$user"
  fi
}

make_folder() {
  refuse_link "$2"
  install -d -m "$1" "$2"
  owned "$3" "$2"
}

stat_mode() { stat -c %a "$1" 2>/dev/null || stat -f %Lp "$1"; }

# We are root and some of these folders are another user's: through a link we would write where only root may.
check_paths() {
  local path
  for path in "${OWN_PATHS[@]}"; do
    refuse_link "$path"
  done
}

refuse_link() { # path: is no link, nor is a folder between it and the one of ours that it lies in
  local path=$1 own
  for own in "${OWN_PATHS[@]}"; do
    case "$1" in
      "$own"/*)
        while [ "$path" != "$own" ]; do
          refuse_one_link "$path"
          path=$(dirname "$path")
        done
        ;;
    esac
  done
  refuse_one_link "$path"
}

refuse_one_link() {
  [ ! -L "$1" ] || die "$1 is a link, and nothing is written through it" "see who made it (ls -ld $1), remove it, and run this script again"
}

refuse_other_kind() { # path what test
  if [ -e "$1" ] && ! test "$3" "$1"; then
    die "$1 is not a $2, and nothing is written through it" "see who made it (ls -ld $1), remove it, and run this script again"
  fi
}

check_bus() { # it goes into unit files and scripts
  [ -n "$BUS" ] || die "no bus named" "$0 --bus ROUTE, the git remote to serve"
  case "$BUS" in
    *[!A-Za-z0-9._:/@#~+%-]*) die "the bus has characters that no route needs: $BUS" "name it by URL, or as a remote" ;;
  esac
}

# They go into the policy, which later runs leave as it is: one that is no policy would end every one of them.
check_policy_words() { # policy
  local LC_ALL=C name='[a-z0-9][a-z0-9._-]{0,62}' expected="lower-case letters, digits, - . _, at most 63" shape
  if [ "$MODE" = check ] || [ -f "$1" ]; then return 0; fi
  shape="^$name\$"
  [[ $NAME =~ $shape ]] || die "--name: got '$NAME'; expected $expected" "--name mini"
  shape="^$name(,$name)*\$"
  [[ $LABELS =~ $shape ]] || die "--labels: got '$LABELS'; expected names of $expected" "--labels quiet,m4"
  case "$MODELS" in
    "") ;;
    *[[:cntrl:]\"\\]* | [!/]*) die "--models: got '$MODELS'; expected an absolute path without quotes" "--models /srv/models" ;;
  esac
}

find_python() {
  local name candidate shut="" IFS=$'\n'
  if [ -n "$PYTHON" ]; then
    python_ok "$PYTHON" || die "$PYTHON is not Python 3.11 or newer" "pass --python with an absolute path"
    return
  fi
  for name in python3.14 python3.13 python3.12 python3.11 python3; do
    for candidate in $(type -aP "$name"); do
      python_ok "$candidate" || continue
      PYTHON=$candidate
      shut_to_service "$(real_python "$candidate")" >/dev/null || return 0
      shut=${shut:-$candidate}
    done
  done
  PYTHON=$shut
  [ -n "$PYTHON" ] || die "no Python 3.11 or newer found" "install one, then pass --python with its absolute path"
}

python_ok() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

real_python() { "$1" -c 'import os, sys; print(os.path.realpath(sys.executable))'; }

# The service and its runs are other users than we are; prints the folder that keeps them from a path.
shut_to_service() { # path
  local path=$1 wanted=5
  [ -z "$ROOT" ] || return 1 # there are no users below --root
  while :; do
    if [ $((8#$(stat_mode "$path") & wanted)) -ne $wanted ] && [ "$(stat_owner "$path")" != "$RUN_USER" ]; then
      printf '%s' "$path"
      return 0
    fi
    [ "$path" != / ] || return 1
    path=$(dirname "$path") wanted=1
  done
}

# The name of an interpreter that upgrades within its minor version leave in place: package managers keep each patch
# release in a folder of its own, which the next upgrade removes (uv issue 1640), behind a link for the minor version.
lasting_python() { # real path
  local real=$1 rest keg link
  case "$real" in
    */Cellar/*/*)
      rest=${real#*/Cellar/} keg=${real%%/Cellar/*}
      link=$keg/opt/${rest%%/*}/bin/$(basename "$real")
      ;;
    */uv/python/cpython-*)
      rest=${real##*/uv/python/}
      link=${real%"$rest"}$(printf '%s' "$rest" | sed -E 's/^(cpython-[0-9]+\.[0-9]+)\.[0-9]+/\1/')
      ;;
    *) link=$real ;;
  esac
  if [ -x "$link" ]; then printf '%s' "$link"; else printf '%s' "$real"; fi
}

pin_python() { # an upgrade that moves `python3` must not change what runs: resolve to the file, or to its minor version
  local shut
  local remedy="install a Python for every user, such as /usr/bin/python3, and set up again with --python and its path"
  PYTHON=$(lasting_python "$(real_python "$PYTHON")")
  remember interpreter "interpreter" "$PYTHON" "$("$PYTHON" -c 'import platform; print(platform.python_version())')"
  if ! shut=$(shut_to_service "$PYTHON"); then
    right "interpreter pinned: $PYTHON"
  elif [ "$MODE" = install ]; then
    die "interpreter: the user $RUN_USER may not come to $PYTHON, because $shut is closed to others" "$remedy"
  else
    wrong "interpreter: the user $RUN_USER may not come to $PYTHON, because $shut is closed to others" "$remedy"
  fi
}

ensure_environment() { # prefix
  local prefix=$1 extras=""
  [ -z "$EXTRAS" ] || extras="[$EXTRAS]"
  remember runner "environment" "$prefix/bin/kakeya-runner" "$prefix/bin/python"
  if "$prefix/bin/python" -I -c "import bridge" 2>/dev/null && "$prefix/bin/kakeya-runner" --help >/dev/null 2>&1; then
    right "environment: $prefix"
    ensure_package "$prefix"
  elif [ "$MODE" = check ]; then
    wrong "environment: $prefix/bin/kakeya-runner does not run" "run this script again without --check"
    return
  else
    # Links to an interpreter that is gone would stay, and pip leaves a broken program of the same version alone.
    if [ -f "$prefix/pyvenv.cfg" ]; then
      act "make the environment $prefix anew with $PYTHON" "$PYTHON" -m venv --clear "$prefix"
    else
      act "make the environment $prefix with $PYTHON" "$PYTHON" -m venv "$prefix"
    fi
    if [ -n "$CONSTRAINTS" ]; then
      act "install $PACKAGE$extras" pip_install_package "$prefix" "$extras" -c "$CONSTRAINTS"
    else
      act "install what it needs, by digest: $LOCK" pip_install "$prefix" --require-hashes -r "$LOCK"
      act "install $PACKAGE" pip_install_package "$prefix" "" --no-deps --no-build-isolation
    fi
    return
  fi
  if [ -z "$CONSTRAINTS" ] && [ "$EXTRAS" = "$LOCKED_EXTRAS" ]; then
    ensure_locked "$prefix"
  fi
}

# The first file of a clone or a wheel that is not installed as it is; of a wheel that is not here, which its name alone
# tells of, another version than that has; else nothing.
UNLIKE_PACKAGE='
import importlib.metadata, importlib.util, sys, zipfile
from pathlib import Path

package, installed = Path(sys.argv[1]), importlib.metadata.distribution("kakeya")
if package.suffix == ".whl" and package.is_file():
    wheel = zipfile.ZipFile(package)
    for name in sorted(wheel.namelist()):
        path = Path(installed.locate_file(name))
        same = path.is_file() and path.read_bytes() == wheel.read(name)
        if not same and not name.endswith(("/", "/RECORD")):  # which pip adds to
            sys.exit(print(name))
elif package.suffix == ".whl":
    print("" if package.name.split("-")[1] == installed.version else installed.version)
for name in ("bridge", "engine") if package.is_dir() else ():
    here = Path(importlib.util.find_spec(name).origin).parent
    files = [(folder, path) for folder in (here, package / name) for path in folder.rglob("*.*")]
    kinds = (".py", ".toml", ".json", ".jinja", ".txt", ".gz")
    paths = {path.relative_to(folder) for folder, path in files if path.suffix in kinds}
    for path in sorted(paths):
        texts = [(folder / path).read_bytes() if (folder / path).is_file() else b"" for folder in (here, package / name)]
        if texts[0] != texts[1]:
            sys.exit(print(f"{name}/{path}"))
'

ensure_package() { # prefix: what is installed is what --package has; a requirement by name is as it was installed
  local unlike
  [ -d "$PACKAGE" ] || [ "${PACKAGE%.whl}" != "$PACKAGE" ] || return 0
  unlike=$("$1/bin/python" -I -c "$UNLIKE_PACKAGE" "$PACKAGE")
  if [ -z "$unlike" ]; then
    right "code as $PACKAGE has it"
  elif [ "$MODE" = check ]; then
    wrong "code: not as $PACKAGE has it: $unlike" "run this script again without --check"
  else
    if [ -n "$CONSTRAINTS" ]; then
      act "install $PACKAGE, instead of another $unlike" pip_install_package "$1" "" --no-deps --force-reinstall
    else
      act "install $PACKAGE, instead of another $unlike" pip_install_package "$1" "" --no-deps --force-reinstall --no-build-isolation
    fi
  fi
}

# What pip builds of a clone leaves the small models' weights out; the clone has them, and their digests are checked.
ensure_models() { # prefix
  local engine=$1/bin/kakeya-engine
  if "$engine" assets list >/dev/null 2>&1; then
    right "models: the small ones have their weights"
  elif [ ! -d "$PACKAGE/engine/assets" ]; then
    right "models: no weights of the small ones in $PACKAGE; from a clone of its version: $engine assets add CLONE"
  elif [ "$MODE" = check ]; then
    wrong "models: not all of the small ones have their weights" "$engine assets add $PACKAGE"
  else
    act "add the small models' weights of $PACKAGE" "$engine" assets add "$PACKAGE"
  fi
}

pip_install() { # prefix words…
  local prefix=$1
  shift
  "$prefix/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# Pip leaves what it builds of a folder there, as root's here, and installs it again with the next build: a module that
# the clone no longer has would come back for ever. So it builds of a copy.
pip_install_package() ( # prefix extras words…
  prefix=$1 extras=$2 place=$PACKAGE
  shift 2
  if [ -d "$PACKAGE" ]; then
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    cp -RH "$PACKAGE"/{pyproject.toml,README.md,LICENSE,NOTICE,bridge,engine} "$place"
  fi
  pip_install "$prefix" "$@" "$place$extras"
)

# A line for each package of a lock that is missing or another version; a build's own suffix (2.9.0+cu128) is none.
UNLIKE_LOCK='
import importlib.metadata, sys
from pip._vendor.packaging.requirements import Requirement

for line in open(sys.argv[1], encoding="ascii"):
    if not line[0].isalnum():
        continue
    wanted = Requirement(line.strip().removesuffix("\\").strip())
    if wanted.marker is not None and not wanted.marker.evaluate():
        continue
    try:
        version = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        print(f"{wanted.name} (missing)")
    else:
        if not wanted.specifier.contains(version, prereleases=True):
            print(f"{wanted.name}=={version}")
'

ensure_locked() { # prefix: what the lock names is installed; what else is there is not the lock's
  local others
  others=$("$1/bin/python" -I -c "$UNLIKE_LOCK" "$LOCK" | paste -sd ' ' -)
  if [ -z "$others" ]; then
    right "packages as $LOCK has them"
  elif [ "$MODE" = check ]; then
    wrong "packages: not as $LOCK has them: $others" "run this script again without --check"
  else
    act "install the packages of $LOCK again, instead of $others" pip_install "$1" --require-hashes -r "$LOCK"
  fi
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
allow = [$ALLOW]

[sandbox]
mode = "$SANDBOX_MODE"
devices = [$DEVICES]
$([ -z "$RUN_SOCKET" ] || printf 'socket = "%s"' "$RUN_SOCKET")
TXT
}

ensure_policy() { # path interpreter user
  local path=$1
  remember mode "policy" "$path" 600 "$3"
  refuse_link "$path"
  if [ -f "$path" ]; then
    if policy_right "$3" "$path"; then
      right "policy: $path (yours to edit; left as it is)"
    elif [ "$MODE" = check ]; then
      wrong "policy: $path is readable by others (mode $(stat_mode "$path")), or not $3's" "chmod 600 $path; chown $3 $path"
    else
      act "close the policy to others: $path" close_file "$path" "$3"
    fi
  elif [ "$MODE" = check ]; then
    wrong "policy: $path is missing; the runner will not serve without one" "run this script again without --check"
  else
    act "write the policy with safe defaults: $path (600)" write_policy "$path" "$2" "$3"
  fi
}

# The user's alone; or root's and readable by the user's group, which the runner takes as well.
policy_right() { # user path
  case "$(stat_mode "$2")" in
    600) owner_right "$1" "$2" ;;
    640) [ -z "$ROOT" ] && [ "$(stat_owner "$2")" = root ] && [ "$(stat_group "$2")" = "$(id -gn "$1" 2>/dev/null)" ] ;;
    *) return 1 ;;
  esac
}

write_policy() { policy_text "$2" | write_file_as "$3" 600 "$1"; }

close_file() {
  refuse_link "$1"
  owned "$2" "$1"
  as_user "$2" chmod 600 "$1"
}

ensure_key() { # runner policy state user: the key that signs results, beside the policy
  local name key
  name=$(sed -n 's/^name = "\(.*\)"$/\1/p' "$2" 2>/dev/null || true)
  key=$(dirname "$2")/identity/${name:-$NAME}/runner.key
  remember mode "signing key" "$key" 600 "$4"
  refuse_link "$key"
  if [ -f "$key" ]; then
    right "signing key: $key"
  elif [ "$MODE" = check ]; then
    wrong "signing key: $key is missing" "run this script again without --check"
  else
    act "make the key that signs results: $key" as_user "$4" "$1" keygen --policy "$2" --state "$3"
  fi
}

as_user() {
  local user=$1
  shift
  if [ -n "$ROOT" ] || [ "$user" = root ]; then
    "$@"
  elif command -v runuser >/dev/null 2>&1; then
    runuser -u "$user" -- "$@"
  else
    sudo -n --preserve-env=ACTIONS_RUNNER_INPUT_TOKEN -u "$user" "$@"
  fi
}

# A service that may not push starts, fails and says so in its log alone. Its user has neither our keychain nor our
# known_hosts; nothing here may ask anybody for a password or about a host.
ensure_way_to_bus() { # home of the service's user
  local output remedy
  remedy="as this user (sudo -u $DAEMON, HOME=$1) give git a credential for it and, over ssh, put the host's key into $1/.ssh/known_hosts; then run this script again"
  if [ "$MODE" = dry-run ]; then
    printf 'would  %s\n' "see that $DAEMON comes to the bus, before its service starts"
  elif output=$(cd / && as_user "$DAEMON" env HOME="$1" GIT_TERMINAL_PROMPT=0 GIT_SSH_COMMAND="ssh -o BatchMode=yes" git ls-remote "${BUS%%#*}" 2>&1 >/dev/null); then
    right "the bus: $DAEMON comes to it"
  elif [ "$MODE" = check ]; then
    wrong "the bus: $DAEMON does not come to it: $(last_line "$output")" "$remedy"
  else
    die "the service is not started: $DAEMON does not come to the bus: $(last_line "$output")" "$remedy"
  fi
}

last_line() { printf '%s\n' "$1" | tail -n 1; }

ensure_receipt() { # path user
  local text=${RECEIPT%$'\n'}
  if same_content "$1" "$text"; then
    right "receipt for kakeya-runner doctor"
  elif [ "$MODE" = check ]; then
    wrong "receipt: $1 is missing or of another set-up" "run this script again with the options it was set up with"
  else
    act "write down what was made, for kakeya-runner doctor: $1" write_receipt "$1" "$text" "$2"
  fi
}

write_receipt() { printf '%s\n' "$2" | write_file_as "$3" 644 "$1"; }

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
