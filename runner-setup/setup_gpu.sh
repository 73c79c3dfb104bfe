#!/usr/bin/env bash
# Make a Linux machine (with or without an NVIDIA GPU) a Kakeya runner, check that it is one, or undo it.
# shellcheck source=runner-setup/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

EXTRAS=torch
SANDBOX_MODE=required

paths() {
  PREFIX=$ROOT/opt/kakeya
  CONFIG=$ROOT/etc/kakeya
  STATE=$ROOT/var/lib/kakeya
  LOGS=$ROOT/var/log/kakeya
  UNIT=$ROOT/etc/systemd/system/$KAKEYA_LABEL.service
  ROTATE=$ROOT/etc/logrotate.d/$KAKEYA_LABEL
  SERVICE_MANAGER=${SERVICE_MANAGER:-systemctl}
}

host_shape() {
  [ "$(uname -s)" = Linux ] || die "this script is for Linux, got $(uname -s)" "runner-setup/setup_mac.sh"
  [ -n "$ROOT" ] || [ "$(id -u)" = 0 ] || [ "$MODE" != install ] || die "must be root to make users and a service" "sudo $0 …"
  NAME=${NAME:-$(hostname -s | tr '[:upper:]_' '[:lower:]-')}
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    right "GPU: $(nvidia-smi -L | head -1)"
    LABELS=${LABELS:-cuda}
  else
    right "GPU: none found; presets that need one will be refused by their probe"
    LABELS=${LABELS:-cpu}
  fi
}

needs() { # command package
  if command -v "$1" >/dev/null 2>&1; then
    right "$1"
  elif [ "$MODE" = check ]; then
    wrong "$1 is not installed" "apt-get install $2"
  else
    act "install $2" apt-get install -y -qq "$2"
  fi
}

ensure_user() { # name home
  if getent passwd "$1" >/dev/null; then
    right "user $1"
  elif [ -n "$ROOT" ]; then
    right "user $1: not made below --root"
  elif [ "$MODE" = check ]; then
    wrong "user $1 is missing" "run this script again without --check"
  else
    act "make the user $1, no password, no shell" useradd --system --home-dir "$2" --no-create-home --shell /usr/sbin/nologin "$1"
  fi
}

unit_text() {
  cat <<TXT
[Unit]
Description=Kakeya runner: runs allow-listed requests from $BUS
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=${PREFIX#"$ROOT"}/bin/kakeya-runner serve --bus $BUS --policy ${CONFIG#"$ROOT"}/policy.toml --state ${STATE#"$ROOT"}
Restart=always
RestartSec=10
KillMode=mixed
TimeoutStopSec=60
StandardOutput=append:${LOGS#"$ROOT"}/runner.log
StandardError=append:${LOGS#"$ROOT"}/runner.log
NoNewPrivileges=no
ProtectSystem=full
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectClock=yes
RestrictRealtime=yes
LockPersonality=yes
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
  if "$SERVICE_MANAGER" is-enabled --quiet "$KAKEYA_LABEL" 2>/dev/null && "$SERVICE_MANAGER" is-active --quiet "$KAKEYA_LABEL" 2>/dev/null; then
    right "service: enabled and running"
  elif [ "$MODE" = check ]; then
    wrong "service: $KAKEYA_LABEL is not enabled and running" "$SERVICE_MANAGER enable --now $KAKEYA_LABEL"
  else
    act "load the unit" "$SERVICE_MANAGER" daemon-reload
    act "start the service now and at every boot" "$SERVICE_MANAGER" enable --now "$KAKEYA_LABEL"
  fi
}

install_all() {
  [ -n "$BUS" ] || die "no bus named" "$0 --bus ROUTE, the git remote to serve"
  find_python
  pin_python
  needs git git
  needs bwrap bubblewrap
  needs git-lfs git-lfs
  ensure_user "$RUN_USER" "${STATE#"$ROOT"}"
  ensure_user "$JOB_USER" /nonexistent
  ensure_folder "configuration folder" 700 "$CONFIG"
  ensure_folder "state folder" 700 "$STATE"
  ensure_folder "log folder" 750 "$LOGS"
  [ -z "$MODELS" ] || ensure_folder "model folder" 755 "$MODELS"
  ensure_environment "$PREFIX"
  ensure_policy "$CONFIG/policy.toml" "${PREFIX#"$ROOT"}/bin/python"
  ensure_file "log rotation" 644 "$ROTATE" "$(rotate_text)"
  ensure_file "service unit" 644 "$UNIT" "$(unit_text)"
  ensure_ssh_access "$STATE/.ssh/authorized_keys" "${PREFIX#"$ROOT"}/bin/kakeya-runner"
  ensure_actions_runner "$STATE/actions-runner"
  ensure_service
}

uninstall_all() {
  if [ -f "$UNIT" ]; then
    act "stop the service" "$SERVICE_MANAGER" disable --now "$KAKEYA_LABEL"
  fi
  local path user
  for path in "$UNIT" "$ROTATE" "$PREFIX" "$CONFIG" "$STATE" "$LOGS"; do remove_path "$path"; done
  [ -n "$ROOT" ] && return
  for user in "$RUN_USER" "$JOB_USER"; do
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
