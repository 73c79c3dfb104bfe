#!/usr/bin/env bash
# Make a Mac with Apple Silicon a Kakeya runner, check that it is one, or undo it.
# The service is a launchd daemon: it starts at boot without anybody logging in, and caffeinate keeps the machine awake.
# shellcheck source=runner-setup/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=runner-setup/access.sh
source "$(dirname "${BASH_SOURCE[0]}")/access.sh"

EXTRAS=mlx,github
LOCKED_EXTRAS=$EXTRAS
LOCK=$(dirname "${BASH_SOURCE[0]}")/locks/mac.txt
MACHINE_LABEL=kakeya-mac
# Role accounts, of which sysadminctl demands this first character: without a password, a login or a home of a person's.
RUN_USER=_kakeya-runner
ACTIONS_USER=_kakeya-actions
SANDBOX_MODE=preferred

paths() {
  PREFIX="$ROOT/usr/local/kakeya"
  CONFIG="$ROOT/usr/local/etc/kakeya"
  STATE="$ROOT/usr/local/var/kakeya"
  LOGS="$ROOT/usr/local/var/log/kakeya"
  PLIST="$ROOT/Library/LaunchDaemons/org.kakeya.runner.plist"
  ROTATE="$ROOT/etc/newsyslog.d/kakeya.conf"
  SERVICE_MANAGER=${SERVICE_MANAGER:-launchctl}
  ACTIONS_HOME="$ROOT/usr/local/var/kakeya-actions"
  ACTIONS_PLIST="$ROOT/Library/LaunchDaemons/org.kakeya.actions.plist"
  SUDOERS="$ROOT/etc/sudoers.d/kakeya-actions"
  STOP_ACTIONS="/bin/launchctl bootout system/org.kakeya.actions"
  SERVICE=org.kakeya.runner
  SERVICE_FILE=$PLIST
  if [ -n "$ACTIONS_URL" ]; then
    SERVICE=org.kakeya.actions
    SERVICE_FILE=$ACTIONS_PLIST
  fi
  DAEMON=$RUN_USER
  OWN_PATHS=("$PREFIX" "$CONFIG" "$STATE" "$LOGS" "$PLIST" "$ROTATE" "$ACTIONS_HOME" "$ACTIONS_PLIST" "$SUDOERS")
}

host_shape() {
  [ "$WITH_JOB_USER" = no ] || die "--job-user is for Linux: a run here has the runner's user, and macOS gives it no other without a daemon that is root" \
    "leave --job-user out; code of requests runs on a Linux host, or under the sandbox of your own Mac: kakeya-mac run --bus embedded"
  if [ "$MODE" != dry-run ]; then
    [ "$(uname -s)" = Darwin ] || die "this script is for macOS, got $(uname -s)" "runner-setup/setup_gpu.sh, or --dry-run to see what it would do"
    [ "$(uname -m)" = arm64 ] || die "MLX needs Apple Silicon, got $(uname -m)" "use a Mac with an M-series chip"
    [ "$(id -u)" = 0 ] || [ "$MODE" != install ] || die "must be root to make a user and a daemon" "sudo $0 …"
  fi
  NAME=${NAME:-$(hostname -s | tr '[:upper:]_' '[:lower:]-')}
  LABELS=${LABELS:-mlx,apple-silicon}
}

needs() { # command how
  remember command "$1" "$1" "$2"
  if command -v "$1" >/dev/null 2>&1; then
    right "$1"
  elif [ "$MODE" = check ]; then
    wrong "$1 is not installed" "$2"
  else
    act "$1 is needed: $2" true
  fi
}

# /usr/bin/git is there on every Mac: without the command line tools it only offers to install them.
needs_git() {
  needs git "xcode-select --install"
  [ "$MODE" != dry-run ] || return 0
  [ "$(command -v git)" != /usr/bin/git ] || xcode-select -p >/dev/null 2>&1 || wrong "git is Apple's stub: the command line tools are missing" "xcode-select --install"
}

# A daemon starts with the Mac, but with FileVault the Mac starts only when somebody has given a password.
say_filevault() {
  [ "$MODE" != dry-run ] || return 0
  case "$(fdesetup status 2>/dev/null)" in
    *"FileVault is On"*) printf 'note   %s\n' "FileVault is on: after a restart nothing runs until somebody has given a password (sudo fdesetup authrestart for one you plan)" ;;
  esac
}

ensure_user() { # name home [shell]: a hidden service user, no password
  remember user "user $1" "$1"
  if dscl . -read "/Users/$1" UniqueID >/dev/null 2>&1; then
    ensure_shell "$1" "$(dscl . -read "/Users/$1" UserShell | sed "s/^UserShell: *//")" "${3:-}" dscl . -create "/Users/$1" UserShell "${3:-}"
  elif [ "$MODE" = check ]; then
    wrong "user $1 is missing" "run this script again without --check"
  else
    act "make the hidden user $1, no password, no shell" make_user "$1" "${2:-/var/empty}" "${3:-/usr/bin/false}"
  fi
}

# Without -roleAccount sysadminctl makes a person's account with an empty password, among those that may log in.
make_user() {
  sysadminctl -addUser "$1" -roleAccount -UID "$(dscl . -list /Users UniqueID | free_role_uid)" -shell "$3" -home "$2"
  dscl . -create "/Users/$1" IsHidden 1
}

free_role_uid() { # names and user ids on standard input, one a line
  awk '{ taken[$2] = 1 } END { for (id = 400; id >= 200; id--) if (!(id in taken)) { print id; exit } }'
}

daemon_words() {
  [ "$CREATE_BUS" = no ] || printf '\n    <string>--create-bus</string>'
}

daemon_user() { printf '\n  <key>UserName</key><string>%s</string>' "$DAEMON"; }

actions_plist_text() {
  cat <<TXT
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>org.kakeya.actions</string>
  <key>UserName</key><string>$ACTIONS_USER</string>
  <key>ProgramArguments</key>
  <array>
    <string>/usr/bin/caffeinate</string>
    <string>-is</string>
    <string>${ACTIONS_HOME#"$ROOT"}/runner/run.sh</string>
  </array>
  <key>WorkingDirectory</key><string>${ACTIONS_HOME#"$ROOT"}/runner</string>
  <key>EnvironmentVariables</key>
  <dict>
    <key>PATH</key><string>${PREFIX#"$ROOT"}/actions-bin:/usr/local/bin:/usr/bin:/bin</string>
    <key>ACTIONS_RUNNER_HOOK_JOB_STARTED</key><string>${PREFIX#"$ROOT"}/libexec/job-started.sh</string>
    <key>ACTIONS_RUNNER_HOOK_JOB_COMPLETED</key><string>${PREFIX#"$ROOT"}/libexec/job-completed.sh</string>
  </dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>Umask</key><integer>63</integer>
  <key>StandardOutPath</key><string>${ACTIONS_HOME#"$ROOT"}/actions.log</string>
  <key>StandardErrorPath</key><string>${ACTIONS_HOME#"$ROOT"}/actions.log</string>
</dict>
</plist>
TXT
}

# What ends in 0 was told to by its owner, by drain or stop, and stays ended.
plist_text() {
  cat <<TXT
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>org.kakeya.runner</string>$(daemon_user)
  <key>ProgramArguments</key>
  <array>
    <string>/usr/bin/caffeinate</string>
    <string>-is</string>
    <string>${PREFIX#"$ROOT"}/bin/kakeya-runner</string>
    <string>serve</string>
    <string>--bus</string>
    <string>$BUS</string>
    <string>--policy</string>
    <string>${CONFIG#"$ROOT"}/policy.toml</string>
    <string>--state</string>
    <string>${STATE#"$ROOT"}</string>$(daemon_words)
  </array>
  <key>EnvironmentVariables</key>
  <dict>
    <key>PATH</key><string>/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin</string>
  </dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ThrottleInterval</key><integer>10</integer>
  <key>ProcessType</key><string>Interactive</string>
  <key>ExitTimeOut</key><integer>60</integer>
  <key>AbandonProcessGroup</key><true/>
  <key>Umask</key><integer>63</integer>
  <key>StandardOutPath</key><string>${LOGS#"$ROOT"}/runner.log</string>
  <key>StandardErrorPath</key><string>${LOGS#"$ROOT"}/runner.log</string>
</dict>
</plist>
TXT
}

rotate_text() { printf '%s/runner.log %s: 640 8 1024 * J\n' "${LOGS#"$ROOT"}" "$DAEMON"; }

# bootout comes back before the daemon has ended; until then bootstrap fails, and its user has a process.
unload_daemon() { # label
  local seconds=70 # ExitTimeOut of the file is 60
  "$SERVICE_MANAGER" bootout "system/$1" || true
  while [ "$seconds" -gt 0 ] && "$SERVICE_MANAGER" print "system/$1" >/dev/null 2>&1; do
    sleep 1
    seconds=$((seconds - 1))
  done
}

# What is loaded knows no changed file.
reload_daemon() {
  unload_daemon "$SERVICE"
  "$SERVICE_MANAGER" bootstrap system "$SERVICE_FILE"
}

ensure_service() { # changes of its file
  remember service "daemon" "$SERVICE_MANAGER" "print system/$SERVICE" "$SERVICE_MANAGER bootstrap system $SERVICE_FILE"
  if [ "$MODE" != dry-run ] && "$SERVICE_MANAGER" print "system/$SERVICE" >/dev/null 2>&1; then
    if [ "$1" -eq 0 ]; then
      right "daemon: loaded"
    else
      act "load the changed daemon $SERVICE" reload_daemon
    fi
  elif [ "$MODE" = check ]; then
    wrong "daemon: $SERVICE is not loaded" "$SERVICE_MANAGER bootstrap system $SERVICE_FILE"
  else
    act "load the daemon $SERVICE now and at every boot" "$SERVICE_MANAGER" bootstrap system "$SERVICE_FILE"
  fi
}

ensure_wakefulness() {
  local settings=""
  [ "$MODE" = dry-run ] || settings=$(pmset -g 2>/dev/null || true)
  if grep -Eq '^ *autorestart +1' <<<"$settings"; then
    right "restarts after a power failure"
  elif [ -n "$settings" ] && ! grep -Eq '^ *autorestart ' <<<"$settings"; then # one with a battery, which bridges them
    right "this Mac has no setting for power failures"
  elif [ "$MODE" = check ]; then
    wrong "the Mac stays off after a power failure" "pmset -a autorestart 1"
  else
    act "restart after a power failure" pmset -a autorestart 1
  fi
}

install_all() {
  local before environment_changes changes
  check_bus
  check_paths
  check_policy_words "$CONFIG/policy.toml"
  check_ssh_access
  check_actions_archive
  find_python
  pin_python
  needs_git
  say_filevault
  needs git-lfs "brew install git-lfs"
  # sshd starts a forced command with the user's shell
  ensure_user "$RUN_USER" "${STATE#"$ROOT"}" "$([ -z "$SSH_KEY_FILE" ] || echo /bin/sh)"
  ensure_folder "configuration folder" 700 "$CONFIG" "$DAEMON"
  ensure_folder "state folder" 700 "$STATE" "$DAEMON"
  ensure_folder "log folder" 750 "$LOGS" "$DAEMON"
  [ -z "$MODELS" ] || ensure_folder "model folder" 755 "$MODELS" root
  # Before anything is changed that the service goes by: the next run would find that right, and leave the service alone.
  ensure_way_to_bus "$STATE"
  before=$CHANGED
  ensure_environment "$PREFIX"
  environment_changes=$((CHANGED - before))
  ensure_models "$PREFIX"
  ensure_policy "$CONFIG/policy.toml" "${PREFIX#"$ROOT"}/bin/python" "$DAEMON"
  ensure_key "$PREFIX/bin/kakeya-runner" "$CONFIG/policy.toml" "$STATE" "$DAEMON"
  ensure_file "log rotation" 644 "$ROTATE" "$(rotate_text)"
  ensure_ssh_access "$STATE"
  ensure_actions
  drop_other_way "$PLIST" "$ACTIONS_PLIST" unload_daemon
  before=$CHANGED
  if [ -n "$ACTIONS_URL" ]; then
    ensure_file "launchd daemon" 644 "$ACTIONS_PLIST" "$(actions_plist_text)"
  else
    ensure_file "launchd daemon" 644 "$PLIST" "$(plist_text)"
  fi
  changes=$((CHANGED - before + environment_changes))
  ensure_wakefulness
  ensure_service "$changes"
  ensure_receipt "$CONFIG/setup.tsv" "$DAEMON"
}

# A daemon that is unloaded leaves its runs to the next start, and there is none.
end_runs() {
  local state # the second is of the runner behind ssh
  for state in "$STATE" "$STATE/ssh"; do
    [ ! -d "$state" ] || (cd / && as_user "$RUN_USER" "$PREFIX/bin/kakeya-runner" stop --runs --policy "$CONFIG/policy.toml" --state "$state") || true
  done
}

uninstall_all() {
  local label path user
  if [ -x "$PREFIX/bin/kakeya-runner" ] && [ -f "$CONFIG/policy.toml" ]; then
    act "end the runs that go on" end_runs
  fi
  for label in org.kakeya.runner org.kakeya.actions; do # a set-up that ended early has a file and loaded nothing
    if "$SERVICE_MANAGER" print "system/$label" >/dev/null 2>&1; then
      act "unload the daemon $label" unload_daemon "$label"
    fi
  done
  for path in "$PLIST" "$ACTIONS_PLIST" "$SUDOERS" "$ROTATE" "$PREFIX" "$CONFIG" "$STATE" "$LOGS" "$ACTIONS_HOME"; do
    remove_path "$path"
  done
  for user in "$RUN_USER" "$JOB_USER" "$ACTIONS_USER"; do
    if dscl . -read "/Users/$user" UniqueID >/dev/null 2>&1; then
      act "remove the user $user" sysadminctl -deleteUser "$user"
    fi
  done
}

parse_options "$@"
paths
host_shape
if [ "$MODE" = uninstall ]; then uninstall_all; else install_all; fi
finish
