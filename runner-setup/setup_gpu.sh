#!/usr/bin/env bash
# Make a Linux machine (with or without an NVIDIA GPU) a Kakeya runner, check that it is one, or undo it.
# shellcheck source=runner-setup/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=runner-setup/access.sh
source "$(dirname "${BASH_SOURCE[0]}")/access.sh"

EXTRAS=torch,trust,github
MACHINE_LABEL=kakeya-gpu
ALLOW='"*-env-probe", "cuda-*", "k3-*"'
SANDBOX_MODE=required
# What root needs to give a run its folders, become its user, mount for it, bound it and kill it.
JOB_CAPABILITIES="CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL CAP_SETGID CAP_SETUID CAP_SYS_ADMIN CAP_SYS_PTRACE CAP_SYS_RESOURCE"

paths() {
  PREFIX=$ROOT/opt/kakeya
  CONFIG=$ROOT/etc/kakeya
  STATE=$ROOT/var/lib/kakeya
  LOGS=$ROOT/var/log/kakeya
  UNIT=$ROOT/etc/systemd/system/$KAKEYA_LABEL.service
  ROTATE=$ROOT/etc/logrotate.d/$KAKEYA_LABEL
  SERVICE_MANAGER=${SERVICE_MANAGER:-systemctl}
  ACTIONS_HOME=$ROOT/var/lib/kakeya-actions
  ACTIONS_UNIT=$ROOT/etc/systemd/system/kakeya-actions.service
  SUDOERS=$ROOT/etc/sudoers.d/kakeya-actions
  STOP_ACTIONS="/usr/bin/systemctl stop kakeya-actions.service"
  SERVICE=$KAKEYA_LABEL
  [ -z "$ACTIONS_URL" ] || SERVICE=kakeya-actions
  OWN_PATHS=("$PREFIX" "$CONFIG" "$STATE" "$LOGS" "$UNIT" "$ROTATE" "$ACTIONS_HOME" "$ACTIONS_UNIT" "$SUDOERS")
}

host_shape() {
  [ "$(uname -s)" = Linux ] || die "this script is for Linux, got $(uname -s)" "runner-setup/setup_mac.sh"
  [ -n "$ROOT" ] || [ "$(id -u)" = 0 ] || [ "$MODE" != install ] || die "must be root to make users and a service" "sudo $0 …"
  NAME=${NAME:-$(hostname -s | tr '[:upper:]_' '[:lower:]-')}
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    right "GPU: $(nvidia-smi -L | head -1)"
    LABELS=${LABELS:-cuda}
    # a run sees nothing of /dev that the policy does not name
    DEVICES=$(find /dev -maxdepth 1 -type c -name 'nvidia*' 2>/dev/null | sort | sed 's/.*/"&"/' | paste -sd, -)
  else
    right "GPU: none found; presets that need one will be refused by their probe"
    LABELS=${LABELS:-cpu}
  fi
}

needs() { # command package
  [ -n "$ROOT" ] || remember command "$1" "$1" "apt-get install $2"
  if command -v "$1" >/dev/null 2>&1; then
    right "$1"
  elif [ -n "$ROOT" ]; then
    right "$1: not installed for a set-up below --root"
  elif [ "$MODE" = check ]; then
    wrong "$1 is not installed" "apt-get install $2"
  else
    act "install $2" apt-get install -y -qq "$2"
  fi
}

ensure_user() { # name home [shell]
  [ -n "$ROOT" ] || remember user "user $1" "$1"
  if getent passwd "$1" >/dev/null; then
    right "user $1"
  elif [ -n "$ROOT" ]; then
    right "user $1: not made below --root"
  elif [ "$MODE" = check ]; then
    wrong "user $1 is missing" "run this script again without --check"
  else
    act "make the user $1, no password, no shell" useradd --system --user-group --home-dir "$2" --no-create-home --shell "${3:-/usr/sbin/nologin}" "$1"
  fi
}

unit_text() {
  cat <<TXT
[Unit]
Description=Kakeya runner: runs allow-listed requests from $BUS
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=${PREFIX#"$ROOT"}/bin/kakeya-runner serve --bus $BUS --policy ${CONFIG#"$ROOT"}/policy.toml --state ${STATE#"$ROOT"}$SERVE_WORDS
$DAEMON_USER
Restart=always
RestartSec=10
KillMode=process
TimeoutStopSec=60
Delegate=yes
StandardOutput=append:${LOGS#"$ROOT"}/runner.log
StandardError=append:${LOGS#"$ROOT"}/runner.log
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ReadWritePaths=${STATE#"$ROOT"} ${LOGS#"$ROOT"}$WRITTEN_BUS
ProtectHome=read-only
ProtectProc=invisible
ProtectKernelModules=yes
ProtectClock=yes
DevicePolicy=closed
$(device_lines)
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
LockPersonality=yes
RemoveIPC=yes
UMask=0077

[Install]
WantedBy=multi-user.target
TXT
}

# The unit is the runner's and its runs': KillMode=process, because a run that goes on is not the runner's to take along.
# No ProtectKernelTunables, ProtectKernelLogs or ProcSubset: they cover parts of /proc, and the kernel then refuses every
# sandbox its own /proc. No RestrictNamespaces, PrivateUsers, ProtectHostname or @mount: the sandbox is made of those.
# ProtectClock closes every device by itself, so those that the policy names are opened.
# Without --job-user the daemon is a user of its own and can become nobody else. With it, it is root, to start each run as
# the job user; the sandbox of a run needs user namespaces either way, so those stay allowed.
device_lines() {
  local device
  for device in $(printf '%s' "$DEVICES" | tr -d '"' | tr , ' '); do
    printf 'DeviceAllow=%s rw\n' "$device"
  done
}

daemon_user() {
  SERVE_WORDS=""
  WRITTEN_BUS=""
  case "$BUS" in /*) WRITTEN_BUS=" -${BUS%%#*}" ;; esac
  [ "$CREATE_BUS" = no ] || SERVE_WORDS=" --create-bus"
  if [ "$WITH_JOB_USER" = yes ]; then
    DAEMON=root
    DAEMON_USER="Environment=XDG_STATE_HOME=${STATE#"$ROOT"}/.local/state
CapabilityBoundingSet=$JOB_CAPABILITIES"
  else
    DAEMON=$RUN_USER
    DAEMON_USER="User=$RUN_USER
Group=$RUN_USER
CapabilityBoundingSet="
  fi
}

actions_unit_text() {
  cat <<TXT
[Unit]
Description=GitHub Actions runner that wakes the Kakeya runner; its jobs are $ACTIONS_USER
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=${ACTIONS_HOME#"$ROOT"}/runner/run.sh
User=$ACTIONS_USER
Group=$ACTIONS_USER
WorkingDirectory=${ACTIONS_HOME#"$ROOT"}/runner
Environment=PATH=${PREFIX#"$ROOT"}/actions-bin:/usr/local/bin:/usr/bin:/bin
Environment=ACTIONS_RUNNER_HOOK_JOB_STARTED=${PREFIX#"$ROOT"}/libexec/job-started.sh
Environment=ACTIONS_RUNNER_HOOK_JOB_COMPLETED=${PREFIX#"$ROOT"}/libexec/job-completed.sh
Restart=on-failure
RestartSec=10
PrivateTmp=yes
ProtectSystem=full
UMask=0077

[Install]
WantedBy=multi-user.target
TXT
}

rotate_text() {
  cat <<TXT
${LOGS#"$ROOT"}/*.log {
  weekly
  rotate 8
  compress
  missingok
  notifempty
  copytruncate
}
TXT
}

ensure_service() {
  remember service "service" "$SERVICE_MANAGER" "is-enabled --quiet $SERVICE" "$SERVICE_MANAGER enable --now $SERVICE"
  remember service "service" "$SERVICE_MANAGER" "is-active --quiet $SERVICE" "$SERVICE_MANAGER enable --now $SERVICE"
  if "$SERVICE_MANAGER" is-enabled --quiet "$SERVICE" 2>/dev/null && "$SERVICE_MANAGER" is-active --quiet "$SERVICE" 2>/dev/null; then
    right "service: enabled and running"
  elif [ "$MODE" = check ]; then
    wrong "service: $SERVICE is not enabled and running" "$SERVICE_MANAGER enable --now $SERVICE"
  else
    act "load the unit" "$SERVICE_MANAGER" daemon-reload
    act "start the service now and at every boot" "$SERVICE_MANAGER" enable --now "$SERVICE"
  fi
}

install_all() {
  check_bus
  check_job_user
  check_paths
  find_python
  pin_python
  needs git git
  needs bwrap bubblewrap
  needs git-lfs git-lfs
  [ -z "$ACTIONS_URL" ] || needs sudo sudo
  daemon_user
  # sshd starts a forced command with the user's shell
  ensure_user "$RUN_USER" "${STATE#"$ROOT"}" "$([ -z "$SSH_KEY_FILE" ] || echo /bin/sh)"
  [ "$WITH_JOB_USER" = no ] || ensure_user "$JOB_USER" /nonexistent
  ensure_folder "configuration folder" 700 "$CONFIG" "$DAEMON"
  ensure_folder "state folder" 700 "$STATE" "$DAEMON"
  ensure_folder "log folder" 750 "$LOGS" "$DAEMON"
  [ -z "$MODELS" ] || ensure_folder "model folder" 755 "$MODELS" root
  ensure_environment "$PREFIX"
  ensure_policy "$CONFIG/policy.toml" "${PREFIX#"$ROOT"}/bin/python" "$DAEMON"
  ensure_key "$PREFIX/bin/kakeya-runner" "$CONFIG/policy.toml" "$STATE" "$DAEMON"
  ensure_file "log rotation" 644 "$ROTATE" "$(rotate_text)"
  ensure_ssh_access "$STATE"
  ensure_actions
  if [ -n "$ACTIONS_URL" ]; then
    ensure_file "service unit" 644 "$ACTIONS_UNIT" "$(actions_unit_text)"
  else
    ensure_file "service unit" 644 "$UNIT" "$(unit_text)"
  fi
  ensure_service
  ensure_receipt "$CONFIG/setup.tsv" "$DAEMON"
}

uninstall_all() {
  local path user unit
  for unit in "$UNIT" "$ACTIONS_UNIT"; do
    [ ! -f "$unit" ] || act "stop the service" "$SERVICE_MANAGER" disable --now "$(basename "$unit" .service)"
  done
  for path in "$UNIT" "$ACTIONS_UNIT" "$SUDOERS" "$ROTATE" "$PREFIX" "$CONFIG" "$STATE" "$LOGS" "$ACTIONS_HOME"; do
    remove_path "$path"
  done
  [ -n "$ROOT" ] && return
  for user in "$RUN_USER" "$JOB_USER" "$ACTIONS_USER"; do
    if getent passwd "$user" >/dev/null; then
      act "remove the user $user" userdel "$user"
    fi
  done
}

parse_options "$@"
paths
host_shape
if [ "$MODE" = uninstall ]; then uninstall_all; else install_all; fi
finish
