# shellcheck shell=bash
# Other ways in than polling: requests over ssh by a forced command, and GitHub Actions as a user who may read nothing.
# Sourced by both set-up scripts after lib.sh. Why Actions gets a user of its own: docs/adr/0006-actions-hook.md.

bare() { printf '%s' "${1#"$ROOT"}"; }

# sshd starts a forced command with the user's shell, and a user made by a set-up without ssh access has none.
ensure_shell() { # user, its shell, the shell it needs or nothing, command that gives it…
  local user=$1 present=$2 shell=$3
  shift 3
  case "$present" in
    */nologin | */false) ;;
    *) shell="" ;;
  esac
  if [ -n "$ROOT" ] || [ -z "$shell" ]; then
    right "user $user"
  elif [ "$MODE" = check ]; then
    wrong "user $user: sshd starts the forced command with its shell, which is $present" "$*"
  else
    act "give the user $user the shell $shell, which sshd starts the forced command with" "$@"
  fi
}

# A second line would be a key of its own, without the forced command; so would options before the key replace ours.
check_ssh_access() {
  [ -n "$SSH_KEY_FILE" ] || return 0
  [ -f "$SSH_KEY_FILE" ] || die "no public key at $SSH_KEY_FILE" "pass --ssh-key with the file of a public key"
  local shape='^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}( [^[:cntrl:]]*)?$'
  if [ "$(awk 'END { print NR }' "$SSH_KEY_FILE")" != 1 ] || ! LC_ALL=C grep -qE "$shape" "$SSH_KEY_FILE"; then
    die "$SSH_KEY_FILE is not one public key alone" "pass --ssh-key with a file of one line: ssh-ed25519 AAAA… NAME"
  fi
  case "$SSH_FROM" in
    *[!A-Za-z0-9.:,/*?!_-]*) die "--ssh-from has characters that no address needs: $SSH_FROM" "--ssh-from 100.64.0.0/10" ;;
  esac
}

ensure_ssh_access() { # home-of-the-runner-user
  [ -n "$SSH_KEY_FILE" ] || return 0
  refuse_link "$1/.ssh/authorized_keys"
  refuse_other_kind "$1/.ssh" folder -d
  refuse_other_kind "$1/.ssh/authorized_keys" file -f
  local file=$1/.ssh/authorized_keys line options=restrict key
  [ -z "$SSH_FROM" ] || options+=",from=\"$SSH_FROM\""
  line="$options,command=\"$(bare "$PREFIX")/bin/kakeya-runner exec --policy $(bare "$CONFIG")/policy.toml --state $(bare "$STATE")\" $(cat "$SSH_KEY_FILE")"
  remember line "ssh access" "$file" "$(printf '%s\n' "$line" | digest)"
  key=$(cut -d' ' -f1,2 "$SSH_KEY_FILE") # an earlier line of it would still let it in: sshd takes any that fits
  if [ -f "$file" ] && grep -qxF "$line" "$file" && [ "$(grep -cF "$key" "$file")" = 1 ]; then
    right "ssh access: forced command in $file"
  elif [ "$MODE" = check ]; then
    wrong "ssh access: the forced command is missing in $file, or not the key's only line" "run this script again with --ssh-key"
  else
    act "allow requests over ssh, forced command only: $file" put_line "$file" "$line" "$key"
  fi
}

# Written by the owner of the folder, not by root: what is swapped for a link meanwhile gains its user nothing.
put_line() { # file, line, key: in place of the other lines of that key
  # shellcheck disable=SC2016  # the inner shell expands its own arguments
  as_user "$DAEMON" sh -c 'umask 077 && mkdir -p "$1" && chmod 700 "$1" && touch "$2" && part=$(mktemp "$2.XXXXXX") \
    && { grep -vF "$4" "$2" >"$part" || [ $? = 1 ]; } && printf "%s\n" "$3" >>"$part" && mv -f "$part" "$2"' \
    sh "$(dirname "$1")" "$1" "$2" "$3"
}

verify_checksum() { # file sha256
  local got
  got=$(digest_of "$1")
  [ "$got" = "$2" ] || die "checksum of $1 is $got, expected $2" "download it again from the page that published the checksum"
}

# What ends in the middle has changed what a service goes by, and the next run finds that right: nobody restarts it.
check_actions_archive() {
  if [ -z "$ACTIONS_URL" ] || [ "$MODE" = check ] || [ -f "$ACTIONS_HOME/runner/.runner" ]; then return 0; fi
  [ -f "$ACTIONS_ARCHIVE" ] || die "no Actions runner archive at '$ACTIONS_ARCHIVE'" "download it and pass --actions-archive and --actions-sha256"
  verify_checksum "$ACTIONS_ARCHIVE" "$ACTIONS_SHA256"
}

read_token() { # from a file or standard input, never from the command line, where every user of the host sees it
  if [ "$ACTIONS_TOKEN_FILE" = - ]; then
    IFS= read -r ACTIONS_TOKEN
  else
    [ -f "$ACTIONS_TOKEN_FILE" ] || die "no registration token at '$ACTIONS_TOKEN_FILE'" "pass --actions-token-file, - for standard input"
    [ "$(stat_mode "$ACTIONS_TOKEN_FILE")" = 600 ] || die "$ACTIONS_TOKEN_FILE is readable by others" "chmod 600 $ACTIONS_TOKEN_FILE"
    IFS= read -r ACTIONS_TOKEN <"$ACTIONS_TOKEN_FILE"
  fi
  [ -n "$ACTIONS_TOKEN" ] || die "the registration token is empty" "get one from the repository's Settings, Actions, Runners"
}

once_text() {
  local create=""
  [ "$CREATE_BUS" = no ] || create=" --create-bus --wake actions"
  cat <<TXT
#!/bin/sh
# Root's: the Actions user may start this through sudo, with the name of a request branch and nothing else.
[ "\$#" -eq 1 ] || exit 2
exec $(bare "$PREFIX")/bin/kakeya-runner once --bus '$BUS'$create --policy $(bare "$CONFIG")/policy.toml --state $(bare "$STATE") --summary "--branch=\$1"
TXT
}

decide_text() {
  cat <<TXT
#!/bin/sh
# Root's: the Actions user may start this through sudo, with a workflow reference and a commit; exit code 0 accepts.
[ "\$#" -eq 2 ] || exit 2
exec $(bare "$PREFIX")/bin/kakeya-runner job-hook decide --policy $(bare "$CONFIG")/policy.toml --state $(bare "$STATE") -- "\$1" "\$2"
TXT
}

ask_text() {
  cat <<TXT
#!/bin/sh
exec sudo -n -u $RUN_USER $(bare "$PREFIX")/libexec/decide "\$1" "\$2"
TXT
}

stop_text() {
  cat <<TXT
#!/bin/sh
exec sudo -n $STOP_ACTIONS
TXT
}

command_text() { # what the workflow's one step finds as kakeya-runner
  cat <<TXT
#!/bin/sh
if [ "\$#" -eq 3 ] && [ "\$1" = once ] && [ "\$2" = --branch ]; then
  exec sudo -n -u $RUN_USER $(bare "$PREFIX")/libexec/once "\$3" >>"\${GITHUB_STEP_SUMMARY:-/dev/null}"
fi
echo "kakeya-runner: Actions may only start: kakeya-runner once --branch NAME" >&2
exit 2
TXT
}

hook_text() { # started|completed
  local words
  words="job-hook $1 --state $(bare "$ACTIONS_HOME")/hook"
  [ "$1" = completed ] || words+=" --ask $(bare "$PREFIX")/libexec/ask --stop $(bare "$PREFIX")/libexec/stop"
  cat <<TXT
#!/bin/sh
exec $(bare "$PREFIX")/bin/kakeya-runner $words
TXT
}

sudoers_text() {
  cat <<TXT
# Jobs of GitHub Actions may ask for a decision, run one request branch, and stop their own service. Nothing else.
$ACTIONS_USER ALL=($RUN_USER) NOPASSWD: $(bare "$PREFIX")/libexec/once, $(bare "$PREFIX")/libexec/decide
$ACTIONS_USER ALL=(root) NOPASSWD: $STOP_ACTIONS
TXT
}

ensure_actions() { # the rest of Actions mode; STOP_ACTIONS, SUDOERS and ACTIONS_HOME are the system's
  [ -n "$ACTIONS_URL" ] || return 0
  local libexec=$PREFIX/libexec name
  ensure_user "$ACTIONS_USER" "$(bare "$ACTIONS_HOME")"
  ensure_folder "folder of the Actions user" 750 "$ACTIONS_HOME" "$ACTIONS_USER"
  ensure_folder "programs of the Actions user" 755 "$libexec" root
  ensure_folder "commands of the Actions user" 755 "$PREFIX/actions-bin" root
  for name in once decide ask stop; do
    ensure_file "program $name" 755 "$libexec/$name" "$("${name}_text")"
  done
  for name in started completed; do
    ensure_file "hook job-$name" 755 "$libexec/job-$name.sh" "$(hook_text "$name")"
  done
  ensure_file "command of the workflow" 755 "$PREFIX/actions-bin/kakeya-runner" "$(command_text)"
  ensure_file "sudo rules of the Actions user" 440 "$SUDOERS" "$(sudoers_text)"
  ensure_actions_runner "$ACTIONS_HOME/runner"
}

# One way in at a time: what an earlier set-up made for the other one would go on beside it.
drop_other_way() { # file of the daemon that polls, file of the Actions service, command that stops one…
  local file=$1 what="daemon that polls"
  [ -n "$ACTIONS_URL" ] || file=$2 what="service of GitHub Actions"
  shift 2
  [ -f "$file" ] || return 0
  if [ "$MODE" = check ]; then
    wrong "the $what is still set up: $file" "run this script again with the options it was set up with, or without --check, which stops that"
    return
  fi
  act "stop the $what" "$@" "$(basename "${file%.*}")"
  remove_path "$file"
  [ -n "$ACTIONS_URL" ] || remove_path "$SUDOERS"
}

ensure_actions_runner() { # folder
  local folder=$1
  refuse_link "$folder"
  remember exists "Actions runner" "$folder/.runner"
  if [ -f "$folder/.runner" ]; then
    right "Actions runner: $folder"
    return
  elif [ "$MODE" = check ]; then
    wrong "Actions runner: $folder is not registered" "run this script again with the --actions options"
    return
  fi
  check_actions_archive
  act "unpack the Actions runner: $folder" unpack "$ACTIONS_ARCHIVE" "$folder"
  act "register it for $ACTIONS_URL with labels $KAKEYA_LABEL,$MACHINE_LABEL" register_actions_runner "$folder"
}

unpack() { # by the user whose folder it is in, who may not be able to read the archive
  refuse_link "$2"
  # shellcheck disable=SC2016  # the inner shell expands its own arguments
  as_user "$ACTIONS_USER" sh -c 'umask 027 && mkdir -p "$1" && tar -xzf - -C "$1"' sh "$2" <"$1"
}

register_actions_runner() { # the token goes in by the environment, which only root and the Actions user can read
  local words=(./config.sh --unattended --url "$ACTIONS_URL" --name "$NAME" --labels "$KAKEYA_LABEL,$MACHINE_LABEL")
  read_token
  (
    cd "$1" || exit 1
    export ACTIONS_RUNNER_INPUT_TOKEN=$ACTIONS_TOKEN
    as_user "$ACTIONS_USER" "${words[@]}"
  )
}
