#!/usr/bin/env bash
# Ask a Kakeya host for a run from a job, wait for it, write the outputs and the job's summary.
set -euo pipefail

if ! command -v kakeya-mac > /dev/null; then
  python3 -m venv "$RUNNER_TEMP/kakeya"
  "$RUNNER_TEMP/kakeya/bin/pip" install --quiet "$GITHUB_ACTION_PATH/../../.."
  PATH="$RUNNER_TEMP/kakeya/bin:$PATH"
fi

document="$RUNNER_TEMP/kakeya-run.json"
field() { # of the document: field outcome reason
  python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = (value or {}).get(key)
print("" if value is None else value)' "$document" "$@"
}

opening=(--bus "$KAKEYA_ASK_BUS" --signing-key none)
if [ -n "$KAKEYA_ASK_SIGNING_KEY" ]; then
  (umask 077 && printf '%s\n' "$KAKEYA_ASK_SIGNING_KEY" > "$RUNNER_TEMP/kakeya-key")
  trap 'rm -f "$RUNNER_TEMP/kakeya-key"' EXIT
  opening=(--bus "$KAKEYA_ASK_BUS" --signing-key "$RUNNER_TEMP/kakeya-key" --principal "$KAKEYA_ASK_PRINCIPAL")
fi
[ -z "$KAKEYA_ASK_ROOT_KEY" ] || opening+=(--root-key "$KAKEYA_ASK_ROOT_KEY")
[ -z "$KAKEYA_ASK_RUNNER_KEY" ] || opening+=(--runner-key "$KAKEYA_ASK_RUNNER_KEY")
kakeya-mac init "${opening[@]}"

words=("$KAKEYA_ASK_PRESET" --profile "$KAKEYA_ASK_PROFILE" --queue)
while IFS= read -r line; do
  [ -z "$line" ] || words+=(-p "$line")
done <<< "$KAKEYA_ASK_PARAMS"
kakeya-mac run "${words[@]}" --json > "$document" || { field outcome message; field outcome remedy; exit 1; }
id=$(field id)
echo "id=$id" >> "$GITHUB_OUTPUT"

if [ -n "$KAKEYA_ASK_DISPATCH" ]; then
  branch=$(field request ref)
  GH_TOKEN="${GH_TOKEN:-${GITHUB_TOKEN:-$KAKEYA_ASK_TOKEN}}" gh workflow run "$KAKEYA_ASK_DISPATCH" -f request_branch="${branch#refs/heads/}"
fi

waiting=("$id" --wait-timeout "$KAKEYA_ASK_WAIT")
[ -z "$KAKEYA_ASK_REQUIRE" ] || waiting+=(--require "$KAKEYA_ASK_REQUIRE")
code=0
kakeya-mac attach "${waiting[@]}" --json > "$document" || code=$?
{
  echo "reason=$(field outcome reason)"
  echo "verdict=$(field outcome verdict)"
  echo "folder=$(field files folder)"
} >> "$GITHUB_OUTPUT"
summary="$(field files folder)/summary.md"
if [ -f "$summary" ]; then
  cat "$summary" >> "$GITHUB_STEP_SUMMARY"
else
  echo "Run \`$id\`: $(field outcome reason)" >> "$GITHUB_STEP_SUMMARY"
fi
kakeya-mac quote "$id" || true
exit "$code"
