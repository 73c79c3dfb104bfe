#!/usr/bin/env bash
# Make a Mac with Apple Silicon a Kakeya runner, check that it is one, or undo it.
# The service is a launchd daemon: it starts at boot without anybody logging in, and caffeinate keeps the machine awake.
# shellcheck source=runner-setup/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

EXTRAS=mlx
SANDBOX_MODE=preferred

paths() {
  PREFIX="$ROOT/usr/local/kakeya"
  CONFIG="$ROOT/usr/local/etc/kakeya"
  STATE="$ROOT/usr/local/var/kakeya"
  LOGS="$ROOT/usr/local/var/log/kakeya"
  PLIST="$ROOT/Library/LaunchDaemons/org.kakeya.runner.plist"
  ROTATE="$ROOT/etc/newsyslog.d/kakeya.conf"
  SERVICE_MANAGER=${SERVICE_MANAGER:-launchctl}
}

host_shape() {
  if [ "$MODE" != dry-run ]; then
    [ "$(uname -s)" = Darwin ] || die "this script is for macOS, got $(uname -s)" "runner-setup/setup_gpu.sh, or --dry-run to see what it would do"
    [ "$(uname -m)" = arm64 ] || die "MLX needs Apple Silicon, got $(uname -m)" "use a Mac with an M-series chip"
    [ "$(id -u)" = 0 ] || [ "$MODE" != install ] || die "must be root to make a user and a daemon" "sudo $0 …"
  fi
  NAME=${NAME:-$(hostname -s | tr '[:upper:]_' '[:lower:]-')}
  LABELS=${LABELS:-mlx,apple-silicon}
}

needs() { # command how
  if command -v "$1" >/dev/null 2>&1; then
    right "$1"
  elif [ "$MODE" = check ]; then
    wrong "$1 is not installed" "$2"
  else
    act "$1 is needed: $2" true
  fi
}

ensure_user() { # a hidden service user, no password, no shell
  if dscl . -read "/Users/$1" UniqueID >/dev/null 2>&1; then
    right "user $1"
  elif [ "$MODE" = check ]; then
    wrong "user $1 is missing" "run this script again without --check"
  else
    act "make the hidden user $1, no password, no shell" sysadminctl -addUser "$1" -shell /usr/bin/false -home /var/empty
  fi
}

plist_text() {
  cat <<TXT
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>org.kakeya.runner</string>
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
    <string>${STATE#"$ROOT"}</string>
  </array>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><true/>
  <key>ThrottleInterval</key><integer>10</integer>
  <key>ProcessType</key><string>Interactive</string>
  <key>ExitTimeOut</key><integer>60</integer>
  <key>Umask</key><integer>63</integer>
  <key>StandardOutPath</key><string>${LOGS#"$ROOT"}/runner.log</string>
  <key>StandardErrorPath</key><string>${LOGS#"$ROOT"}/runner.log</string>
</dict>
</plist>
TXT
}

rotate_text() { printf '%s/runner.log 640 8 1024 * J\n' "${LOGS#"$ROOT"}"; }

ensure_service() {
  if [ "$MODE" != dry-run ] && "$SERVICE_MANAGER" print system/org.kakeya.runner >/dev/null 2>&1; then
    right "daemon: loaded"
  elif [ "$MODE" = check ]; then
    wrong "daemon: org.kakeya.runner is not loaded" "$SERVICE_MANAGER bootstrap system $PLIST"
  else
    act "load the daemon now and at every boot" "$SERVICE_MANAGER" bootstrap system "$PLIST"
  fi
}

ensure_wakefulness() {
  if [ "$MODE" != dry-run ] && pmset -g 2>/dev/null | grep -Eq '^ *autorestart +1'; then
    right "restarts after a power failure"
  elif [ "$MODE" = check ]; then
    wrong "the Mac stays off after a power failure" "pmset -a autorestart 1"
  else
    act "restart after a power failure" pmset -a autorestart 1
  fi
}

install_all() {
  [ -n "$BUS" ] || die "no bus named" "$0 --bus ROUTE, the git remote to serve"
  find_python
  pin_python
  needs git "xcode-select --install"
  needs git-lfs "brew install git-lfs"
  ensure_user "$JOB_USER"
  ensure_folder "configuration folder" 700 "$CONFIG"
  ensure_folder "state folder" 700 "$STATE"
  ensure_folder "log folder" 750 "$LOGS"
  [ -z "$MODELS" ] || ensure_folder "model folder" 755 "$MODELS"
  ensure_environment "$PREFIX"
  ensure_policy "$CONFIG/policy.toml" "${PREFIX#"$ROOT"}/bin/python"
  ensure_file "log rotation" 644 "$ROTATE" "$(rotate_text)"
  ensure_file "launchd daemon" 644 "$PLIST" "$(plist_text)"
  ensure_ssh_access "$STATE/.ssh/authorized_keys" "${PREFIX#"$ROOT"}/bin/kakeya-runner"
  ensure_actions_runner "$STATE/actions-runner"
  ensure_wakefulness
  ensure_service
}

uninstall_all() {
  if [ -f "$PLIST" ]; then
    act "unload the daemon" "$SERVICE_MANAGER" bootout system/org.kakeya.runner
  fi
  local path
  for path in "$PLIST" "$ROTATE" "$PREFIX" "$CONFIG" "$STATE" "$LOGS"; do remove_path "$path"; done
  if dscl . -read "/Users/$JOB_USER" UniqueID >/dev/null 2>&1; then
    act "remove the user $JOB_USER" sysadminctl -deleteUser "$JOB_USER"
  fi
}

parse_options "$@"
paths
host_shape
if [ "$MODE" = uninstall ]; then uninstall_all; else install_all; fi
finish
