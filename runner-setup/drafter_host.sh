#!/usr/bin/env bash
# Draft on another machine: see whether that pays before anything is installed there, install it, and carry its drafts here.
# Run it where the target decodes. Nothing is encrypted but by ssh, and nothing listens beyond a loopback: see
# docs/guides/remote-drafter.md.
set -euo pipefail

SSH=${SSH:-ssh}
ENGINE=${ENGINE:-kakeya-engine}
REMOTE_DIR=${REMOTE_DIR:-kakeya-drafter}
PORT=${PORT:-50551}
PINGS=10
PROBE_MIB=16
PACKAGE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
TARGET=()
RESTORED=()

usage() {
  cat <<TXT
usage: $(basename "$0") check|install|serve HOST [options]

  check     measure the way to HOST and say whether a drafter there would pay; changes nothing anywhere
  install   check, then put this clone and its own environment into ~/$REMOTE_DIR on HOST
  serve     start the drafter on HOST and end its port in a socket here, until interrupted

  --target NAME      the target whose drafter it is (default: the engine's own)
  --drafter NAME     the drafter (default: the one that belongs to the target)
  --restoration NAME serve: an f_theta that makes a bounded cache's rows again there: --cache …+ftheta@remote
  --extras A,B       extras of the package on HOST (default: torch,distributed)
  --socket FILE      serve: the socket here (default: ./drafter.sock)
  --target-ms MS     check: emulate a target this slow a token, where the one to be served is not here
TXT
}

die() {
  printf '%s\n' "$1" >&2
  [ $# -lt 2 ] || printf '  %s\n' "$2" >&2
  exit 2
}

remote() { "$SSH" "${CONTROL[@]}" -o BatchMode=yes "$HOST" "$@"; }

now_ms() { perl -MTime::HiRes=time -e 'printf "%d\n", 1000 * time'; }

quoted() { [ $# = 0 ] || printf ' %q' "$@"; }

# What the words say is checked before anything is measured, sent or started.
preflight() {
  command -v "$SSH" >/dev/null || die "$SSH is not installed here" "install an OpenSSH client, or name one: SSH=FILE"
  [[ $REMOTE_DIR =~ ^[A-Za-z0-9._/][A-Za-z0-9._/-]*$ ]] || die "REMOTE_DIR=$REMOTE_DIR: expected letters, digits and . _ / -" "REMOTE_DIR=kakeya-drafter"
  [[ $PORT =~ ^[1-9][0-9]{0,4}$ && $PORT -le 65535 ]] || die "PORT=$PORT: expected 1 to 65535" "PORT=50551"
  [[ $EXTRAS =~ ^[a-z0-9,-]+$ ]] || die "--extras $EXTRAS: expected names separated by commas" "--extras torch,distributed"
  [[ $TARGET_MS =~ ^[0-9]{1,6}(\.[0-9]+)?$ ]] || die "--target-ms $TARGET_MS: expected a number of milliseconds" "--target-ms 40"
  if [ "$VERB" = serve ]; then
    [ -d "$(dirname "$SOCKET")" ] || die "there is no folder for $SOCKET" "mkdir -p $(dirname "$SOCKET")"
    [[ $SOCKET != *:* ]] || die "$SOCKET: ssh -L reads a colon as its own" "a path without colons"
    [ ! -e "$SOCKET" ] || die "$SOCKET is there already" "rm $SOCKET, if nothing uses it"
    return
  fi
  command -v perl >/dev/null || die "perl is not installed here" "install perl: it reads the clock in milliseconds"
  command -v "$ENGINE" >/dev/null || die "$ENGINE is not installed here" "make demo in the clone, then . .venv/bin/activate"
}

is_installed() { remote "test -x $REMOTE_DIR/.venv/bin/kakeya-engine"; }

reach() {
  remote true || die "$HOST cannot be reached by ssh without a question" "ssh $HOST true, and a key in your agent"
}

# The median of round trips of a byte over one open stream: what a draft's way costs at least.
round_trip_ms() {
  perl -MIPC::Open2 -MTime::HiRes=time -e '
    my $count = shift;
    my @took;
    open2(my $from, my $to, @ARGV);
    for (0 .. $count) {
      my $began = time;
      syswrite($to, "x") && sysread($from, my $byte, 1) or exit 1;
      push @took, 1000 * (time - $began);
    }
    shift @took;  # the first waits for the stream to open
    printf "%.1f\n", (sort { $a <=> $b } @took)[$count / 2];
  ' "$PINGS" "$SSH" "${CONTROL[@]}" -o BatchMode=yes "$HOST" cat
}

mib_s() {
  local began took
  began=$(now_ms)
  head -c "$((PROBE_MIB << 20))" /dev/urandom | remote 'cat > /dev/null'
  took=$(($(now_ms) - began))
  echo $((PROBE_MIB * 1000 / (took > 0 ? took : 1)))
}

check() {
  reach
  RTT_MS=$(round_trip_ms)
  MIB_S=$(mib_s)
  printf 'link      %s: round trip %s ms, %s MiB/s up\n' "$HOST" "$RTT_MS" "$MIB_S"
  local ours theirs
  ours=$("$ENGINE" distributed agree ${TARGET[@]+"${TARGET[@]}"})
  printf 'agreement %s\n' "$ours"
  if is_installed; then
    theirs=$(remote "$REMOTE_DIR/.venv/bin/kakeya-engine distributed agree$(quoted ${TARGET[@]+"${TARGET[@]}"})") || theirs="nothing: it cannot serve this drafter"
    if [ "$ours" = "$theirs" ]; then
      printf 'there     the same\n'
    elif [ "$VERB" = install ]; then
      printf 'there     another drafter, replaced by this clone: it agrees on %s\n' "$theirs"
    else
      die "$HOST would serve another drafter: it agrees on $theirs" "$(basename "$0") install $HOST, with the same models on both machines"
    fi
  else
    printf 'there     nothing is installed yet\n'
  fi
  "$ENGINE" distributed plan ${TARGET[@]+"${TARGET[@]}"} --link-ms "$RTT_MS" --link-mib-s "$((MIB_S > 0 ? MIB_S : 1))" --target-ms "$TARGET_MS"
}

install() {
  check
  command -v git >/dev/null || die "git is not installed here" "install git: the committed tree is what is sent"
  # The committed tree: what differs from it here is not sent.
  git -C "$PACKAGE" archive HEAD | remote "mkdir -p $REMOTE_DIR && tar -xf - -C $REMOTE_DIR"
  remote "cd $REMOTE_DIR && python3 -m venv .venv && .venv/bin/python -m pip install --quiet -c constraints.txt -e '.[$EXTRAS]'"
  printf 'installed %s:%s at %s\n' "$HOST" "$REMOTE_DIR" "$(git -C "$PACKAGE" rev-parse --short HEAD)"
}

serve() {
  reach
  is_installed || die "nothing is installed on $HOST" "$(basename "$0") install $HOST"
  local folder
  folder=$(cd "$(dirname "$SOCKET")" && pwd)
  printf 'policy    [sandbox] endpoints = ["unix:%s/%s"]\n' "$folder" "$(basename "$SOCKET")"
  printf 'try       %s distributed verify --address unix:%s/%s\n' "$ENGINE" "$folder" "$(basename "$SOCKET")"
  # The server there ends with its standard input: a pipe that nobody writes to, and whose only writing end is ours, so
  # that it ends with this script however that does.
  mkfifo "$WORK/alive"
  "$SSH" -o BatchMode=yes -o ExitOnForwardFailure=yes -o StreamLocalBindUnlink=yes \
    -L "$folder/$(basename "$SOCKET"):127.0.0.1:$PORT" "$HOST" \
    "$REMOTE_DIR/.venv/bin/kakeya-engine distributed serve --until-eof --address 127.0.0.1:$PORT$(quoted ${TARGET[@]+"${TARGET[@]}"} ${RESTORED[@]+"${RESTORED[@]}"})" \
    <"$WORK/alive" &
  exec 9>"$WORK/alive"
  trap 'exec 9>&-; wait; exit 130' INT
  trap 'exec 9>&-; wait; exit 143' TERM
  wait $!
}

VERB=${1:-}
case $VERB in
  check | install | serve) ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac
HOST=${2:-}
case $HOST in
  "" | -*) die "no HOST" "$(basename "$0") $VERB HOST" ;;
esac
shift 2
EXTRAS=torch,distributed
SOCKET=./drafter.sock
TARGET_MS=0
while [ $# -gt 0 ]; do
  [ $# -gt 1 ] || die "$1 lacks its value" "$(basename "$0") --help"
  case $1 in
    --target | --drafter) TARGET+=("$1" "$2") ;;
    --restoration) RESTORED=("$1" "$2") ;;
    --extras) EXTRAS=$2 ;;
    --socket) SOCKET=$2 ;;
    --target-ms) TARGET_MS=$2 ;;
    *) die "unknown option $1" "$(basename "$0") --help" ;;
  esac
  shift 2
done
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
preflight
# One connection for all calls: opening one each time would be measured instead of the link.
CONTROL=(-o ControlMaster=auto -o "ControlPath=$WORK/ssh" -o ControlPersist=60)
"$VERB"
