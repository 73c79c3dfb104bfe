#!/usr/bin/env bash
# Make a Linux machine (with or without an NVIDIA GPU) a Kakeya runner, check that it is one, or undo it.
# shellcheck source=runner-setup/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=runner-setup/access.sh
source "$(dirname "${BASH_SOURCE[0]}")/access.sh"

EXTRAS=torch,github
LOCKED_EXTRAS=$EXTRAS
LOCK=$(dirname "${BASH_SOURCE[0]}")/locks/gpu.txt
MACHINE_LABEL=kakeya-gpu
ALLOW='"*-env-probe", "cuda-*", "k3-*"'
SANDBOX_MODE=required
RUN_SOCKET=/run/kakeya-run.sock

paths() {
  PREFIX=$ROOT/opt/kakeya
  CONFIG=$ROOT/etc/kakeya
  STATE=$ROOT/var/lib/kakeya
  LOGS=$ROOT/var/log/kakeya
  UNIT=$ROOT/etc/systemd/system/$KAKEYA_LABEL.service
  RUN_UNIT=$ROOT/etc/systemd/system/kakeya-run@.service
  RUN_SOCKET_UNIT=$ROOT/etc/systemd/system/kakeya-run.socket
  DAEMON=$RUN_USER
  ROTATE=$ROOT/etc/logrotate.d/$KAKEYA_LABEL
  APPARMOR=$ROOT/etc/apparmor.d
  APPARMOR_PROFILE=$APPARMOR/kakeya-bwrap
  USERNS_RESTRICTED=$ROOT/proc/sys/kernel/apparmor_restrict_unprivileged_userns
  SERVICE_MANAGER=${SERVICE_MANAGER:-systemctl}
  ACTIONS_HOME=$ROOT/var/lib/kakeya-actions
  ACTIONS_UNIT=$ROOT/etc/systemd/system/kakeya-actions.service
  SUDOERS=$ROOT/etc/sudoers.d/kakeya-actions
  STOP_ACTIONS="/usr/bin/systemctl stop kakeya-actions.service"
  SERVICE=$KAKEYA_LABEL
  [ -z "$ACTIONS_URL" ] || SERVICE=kakeya-actions
  OWN_PATHS=("$PREFIX" "$CONFIG" "$STATE" "$LOGS" "$UNIT" "$RUN_UNIT" "$RUN_SOCKET_UNIT" "$ROTATE" "$ACTIONS_HOME" "$ACTIONS_UNIT" "$SUDOERS" "$APPARMOR_PROFILE")
}

host_shape() {
  [ "$(uname -s)" = Linux ] || die "this script is for Linux, got $(uname -s)" "runner-setup/setup_mac.sh"
  [ -n "$ROOT" ] || [ "$(id -u)" = 0 ] || [ "$MODE" != install ] || die "must be root to make users and a service" "sudo $0 …"
  NAME=${NAME:-$(hostname -s | tr '[:upper:]_' '[:lower:]-')}
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q GPU; then
    right "GPU: $(nvidia-smi -L | head -1)"
    LABELS=${LABELS:-cuda}
    check_gpus
    # a run sees nothing of /dev that the policy does not name
    DEVICES=$(find /dev -maxdepth 1 -type c -name 'nvidia*' 2>/dev/null | sort | sed 's/.*/"&"/' | paste -sd, -)
  else
    right "GPU: none found; presets that need one will be refused by their probe"
    LABELS=${LABELS:-cpu}
  fi
}

# What the locked torch needs, by the CUDA that it was built for: NVIDIA's table of drivers (CUDA Compatibility, "Minor
# Version Compatibility") and the oldest cards that this CUDA still makes code for (CUDA Toolkit release notes).
check_gpus() {
  local cuda driver capability needed=525 oldest=5.0
  case ",$EXTRAS," in *,torch,*) ;; *) return 0 ;; esac
  [ -z "$CONSTRAINTS" ] || return 0 # another torch than the locked one; doctor compares what was installed
  cuda=$(sed -n 's/^cuda-toolkit==\([0-9]*\)\..*/\1/p' "$LOCK")
  if [ "${cuda:-0}" -ge 13 ]; then needed=580 oldest=7.5; fi
  while IFS=', ' read -r driver capability; do
    if ! [[ $driver =~ ^[0-9]+\. && $capability =~ ^[0-9]+\.[0-9]+$ ]]; then
      unfit "nvidia-smi says neither driver nor compute capability: ${driver:-nothing} ${capability:-}" "look at nvidia-smi --query-gpu=driver_version,compute_cap --format=csv"
    elif [ "${driver%%.*}" -lt "$needed" ]; then
      unfit "the driver $driver is too old for the locked torch, which was built for CUDA $cuda: it needs $needed or newer" "upgrade the driver, or name another torch: --constraints FILE"
    elif [ "${capability%.*}${capability#*.}" -lt "${oldest%.*}${oldest#*.}" ]; then
      unfit "a card of compute capability $capability is too old for the locked torch, which was built for CUDA $cuda: it needs $oldest or newer" "name a torch for an older CUDA: --constraints FILE"
    else
      right "GPU: driver $driver and compute capability $capability fit the locked torch (CUDA $cuda)"
    fi
  done < <(nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader | sort -u)
}

unfit() { # what, remedy: before anything is installed
  if [ "$MODE" = install ]; then die "$1" "$2"; else wrong "$1" "$2"; fi
}

apparmor_text() {
  cat <<TXT
# Ubuntu 23.10 and later let only programs with a profile make user namespaces. bwrap makes those that runs are confined in;
# it is otherwise as unconfined as before. Form: apparmor.d(5), "userns"; Ubuntu's own profiles have the same.
abi <abi/4.0>,
include <tunables/global>

profile kakeya-bwrap $(command -v bwrap || echo /usr/bin/bwrap) flags=(unconfined) {
  userns,
}
TXT
}

ensure_apparmor() { # a profile for this bwrap where the kernel asks for one and the distribution brings none
  if [ "$(cat "$USERNS_RESTRICTED" 2>/dev/null)" != 1 ]; then
    right "user namespaces: AppArmor does not restrict them"
  elif grep -rlsE '^ *profile .*/bwrap' "$APPARMOR" | grep -qvxF "$APPARMOR_PROFILE"; then
    right "user namespaces: the system has a profile for bwrap"
  else
    ensure_file "AppArmor profile of bwrap" 644 "$APPARMOR_PROFILE" "$(apparmor_text)"
    if [ -n "$ROOT" ]; then
      right "AppArmor profile of bwrap: not loaded below --root"
    elif [ "$MODE" != check ]; then
      act "load the AppArmor profile of bwrap" apparmor_parser -r "$APPARMOR_PROFILE"
    fi
  fi
}

install_words() { # how this system installs a package; nothing where it has none of the three
  if command -v apt-get >/dev/null 2>&1; then
    echo "apt-get install -y -qq"
  elif command -v dnf >/dev/null 2>&1; then
    echo "dnf install -y -q"
  elif command -v zypper >/dev/null 2>&1; then
    echo "zypper --non-interactive --quiet install"
  fi
}

needs() { # command, package: which all of them call the same
  local words repair
  words=$(install_words)
  repair="${words:-install the package} $2"
  [ -n "$ROOT" ] || remember command "$1" "$1" "$repair"
  if command -v "$1" >/dev/null 2>&1; then
    right "$1"
  elif [ -n "$ROOT" ]; then
    right "$1: not installed for a set-up below --root"
  elif [ "$MODE" = check ] || [ -z "$words" ]; then
    unfit "$1 is not installed" "$repair"
  else
    act "install $2" sh -c "$repair"
  fi
}

ensure_user() { # name home [shell]
  [ -n "$ROOT" ] || remember user "user $1" "$1"
  if getent passwd "$1" >/dev/null; then
    ensure_shell "$1" "$(getent passwd "$1" | cut -d: -f7)" "${3:-}" usermod --shell "${3:-}" "$1"
  elif [ -n "$ROOT" ]; then
    right "user $1: not made below --root"
  elif [ "$MODE" = check ]; then
    wrong "user $1 is missing" "run this script again without --check"
  else
    act "make the user $1, no password, no shell" useradd --system --user-group --home-dir "$2" --no-create-home --shell "${3:-/usr/sbin/nologin}" "$1"
  fi
}

# The runner starts no sandbox and becomes nobody else, so its unit forbids it both. What ends in 0 was told to by its owner,
# by drain or stop, and stays ended.
unit_text() {
  local bus
  bus=$(unit_word "$BUS")
  cat <<TXT
[Unit]
Description=Kakeya runner: runs allow-listed requests from $bus
After=network-online.target kakeya-run.socket
Wants=network-online.target kakeya-run.socket

[Service]
ExecStart=${PREFIX#"$ROOT"}/bin/kakeya-runner serve --bus $bus --policy ${CONFIG#"$ROOT"}/policy.toml --state ${STATE#"$ROOT"}$(serve_words)
User=$RUN_USER
Group=$RUN_USER
Restart=on-failure
RestartSec=10
KillMode=mixed
TimeoutStopSec=60
StandardOutput=append:${LOGS#"$ROOT"}/runner.log
StandardError=append:${LOGS#"$ROOT"}/runner.log
ReadWritePaths=${STATE#"$ROOT"} ${LOGS#"$ROOT"} $(remembered)$(written_bus)
$(common_protections)
ProtectProc=invisible
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelTunables=yes
RestrictNamespaces=yes
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources

[Install]
WantedBy=multi-user.target
TXT
}

# No ProtectKernelTunables, ProtectKernelLogs or ProcSubset in a run's unit: they cover parts of /proc, and the kernel then
# refuses every sandbox its own /proc. No ProtectProc: who holds a run's processes cannot be traced, and would be invisible to
# the supervisor that watches it. No RestrictNamespaces, PrivateUsers, ProtectHostname or @mount: the sandbox is made of
# those. KillMode=mixed asks the supervisor alone to end the run, and kills what is left of the control group.
run_unit_text() {
  cat <<TXT
[Unit]
Description=Runs of Kakeya, one at a time, under a user of their own (%i)
CollectMode=inactive-or-failed

[Service]
ExecStart=${PREFIX#"$ROOT"}/bin/python -I -m bridge.executor.holder.run_unit
StandardInput=socket
StandardOutput=null
StandardError=journal
$(run_user)
Delegate=yes
TasksMax=4096
CPUWeight=50
OOMPolicy=continue
KillMode=mixed
TimeoutStopSec=60
InaccessiblePaths=-${CONFIG#"$ROOT"} -${STATE#"$ROOT"} -${LOGS#"$ROOT"}
$(common_protections)
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap
TXT
}

run_socket_text() {
  cat <<TXT
[Unit]
Description=Where the Kakeya runner asks for a process and a user of a run's own

[Socket]
ListenStream=$RUN_SOCKET
Accept=yes
SocketUser=$RUN_USER
SocketMode=0600
MaxConnections=64
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
TXT
}

run_user() {
  if [ "$WITH_JOB_USER" = yes ]; then
    printf 'User=%s\nGroup=%s' "$JOB_USER" "$JOB_USER"
  else
    printf 'DynamicUser=yes'
  fi
}

# ProtectClock closes every device by itself, so those that the policy names are opened.
common_protections() {
  cat <<TXT
CapabilityBoundingSet=
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelModules=yes
ProtectClock=yes
DevicePolicy=closed
$(device_lines)
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
LockPersonality=yes
RemoveIPC=yes
UMask=0077
TXT
}

device_lines() {
  local device
  for device in $(printf '%s' "$DEVICES" | tr -d '"' | tr , ' '); do
    printf 'DeviceAllow=%s rw\n' "$device"
  done
}

# Beside its key a runner notes which buses it served and whose roots it saw; the policy stays as its owner wrote it.
remembered() { printf -- '-%s/identity' "${CONFIG#"$ROOT"}"; }

unit_word() { printf '%s' "${1//\%/%%}"; } # systemd takes a percent sign for a specifier of its own

written_bus() {
  case "$BUS" in /*) printf ' -%s' "$(unit_word "${BUS%%#*}")" ;; esac
}

serve_words() {
  [ "$CREATE_BUS" = no ] || printf ' --create-bus'
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
ReadWritePaths=$(remembered)
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

ensure_unit() { # what unit changes: of its files, which what runs does not know yet
  remember service "$1" "$SERVICE_MANAGER" "is-enabled --quiet $2" "$SERVICE_MANAGER enable --now $2"
  remember service "$1" "$SERVICE_MANAGER" "is-active --quiet $2" "$SERVICE_MANAGER enable --now $2"
  if "$SERVICE_MANAGER" is-enabled --quiet "$2" 2>/dev/null && "$SERVICE_MANAGER" is-active --quiet "$2" 2>/dev/null; then
    if [ "$3" -eq 0 ]; then
      right "$1: enabled and running"
    else
      act "load the changed unit of the $1" "$SERVICE_MANAGER" daemon-reload
      act "restart the $1" "$SERVICE_MANAGER" restart "$2"
    fi
  elif [ "$MODE" = check ]; then
    wrong "$1: $2 is not enabled and running" "$SERVICE_MANAGER enable --now $2"
  else
    act "load the unit of the $1" "$SERVICE_MANAGER" daemon-reload
    act "start the $1 now and at every boot" "$SERVICE_MANAGER" enable --now "$2"
  fi
}

install_all() {
  local before environment_changes service_changes
  check_bus
  check_paths
  check_policy_words "$CONFIG/policy.toml"
  check_ssh_access
  check_actions_archive
  find_python
  pin_python
  needs git git
  needs bwrap bubblewrap
  ensure_apparmor
  needs git-lfs git-lfs
  [ -z "$ACTIONS_URL" ] || needs sudo sudo
  # sshd starts a forced command with the user's shell
  ensure_user "$RUN_USER" "${STATE#"$ROOT"}" "$([ -z "$SSH_KEY_FILE" ] || echo /bin/sh)"
  [ "$WITH_JOB_USER" = no ] || ensure_user "$JOB_USER" /nonexistent
  ensure_folder "configuration folder" 700 "$CONFIG" "$DAEMON"
  ensure_folder "state folder" 700 "$STATE" "$DAEMON"
  ensure_folder "log folder" 750 "$LOGS" "$DAEMON"
  [ -z "$MODELS" ] || ensure_folder "model folder" 755 "$MODELS" root
  # Before anything is changed that the service goes by: the next run would find that right, and leave the service alone.
  if [ -n "$ROOT" ]; then right "the bus: not asked below --root"; else ensure_way_to_bus "$STATE"; fi
  before=$CHANGED
  ensure_environment "$PREFIX"
  environment_changes=$((CHANGED - before))
  ensure_models "$PREFIX"
  ensure_policy "$CONFIG/policy.toml" "${PREFIX#"$ROOT"}/bin/python" "$DAEMON"
  ensure_key "$PREFIX/bin/kakeya-runner" "$CONFIG/policy.toml" "$STATE" "$DAEMON"
  ensure_file "log rotation" 644 "$ROTATE" "$(rotate_text)"
  ensure_ssh_access "$STATE"
  ensure_actions
  drop_other_way "$UNIT" "$ACTIONS_UNIT" "$SERVICE_MANAGER" disable --now
  before=$CHANGED
  if [ -n "$ACTIONS_URL" ]; then
    ensure_file "service unit" 644 "$ACTIONS_UNIT" "$(actions_unit_text)"
  else
    ensure_file "service unit" 644 "$UNIT" "$(unit_text)"
  fi
  service_changes=$((CHANGED - before + environment_changes)) before=$CHANGED
  ensure_file "socket of the runs" 644 "$RUN_SOCKET_UNIT" "$(run_socket_text)"
  ensure_file "unit of a run" 644 "$RUN_UNIT" "$(run_unit_text)"
  ensure_unit "socket" kakeya-run.socket $((CHANGED - before))
  ensure_unit "service" "$SERVICE" "$service_changes"
  ensure_receipt "$CONFIG/setup.tsv" "$DAEMON"
}

uninstall_all() {
  local path user unit
  for unit in "$UNIT" "$ACTIONS_UNIT" "$RUN_SOCKET_UNIT"; do
    [ ! -f "$unit" ] || act "stop the service" "$SERVICE_MANAGER" disable --now "$(basename "$unit" .service)"
  done
  [ ! -f "$RUN_UNIT" ] || act "end the runs that go on" "$SERVICE_MANAGER" stop 'kakeya-run@*.service'
  [ ! -f "$APPARMOR_PROFILE" ] || [ -n "$ROOT" ] || act "unload the AppArmor profile of bwrap" apparmor_parser -R "$APPARMOR_PROFILE"
  for path in "$UNIT" "$RUN_UNIT" "$RUN_SOCKET_UNIT" "$ACTIONS_UNIT" "$SUDOERS" "$ROTATE" "$APPARMOR_PROFILE" "$PREFIX" "$CONFIG" "$STATE" "$LOGS" "$ACTIONS_HOME"; do
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
