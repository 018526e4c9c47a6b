#!/usr/bin/env bash
# The demo and a quick part of the tests as most people first meet them: on the system's own Python, as an ordinary user,
# without engines, bubblewrap, perl, Node.js or kubectl. `.ci/run` calls it twice: with `setup` beside other checks, then with `test`.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=/usr/bin/python3
MISSING=(bwrap busybox chromium chromium-headless-shell containerd ctr docker dockerd ip iptables kubectl node npm perl podman redis-cli redis-server runc)
PARTS=(tests/agent/volumes tests/agent/node/test_rootless.py tests/agent/pods/test_security_context.py tests/agent/pods/test_isolation.py
    tests/agent/pods/test_pods_on_processes.py tests/main/test_agent_process.py tests/runtimes/process/test_runtime.py tests/runtimes/linux/test_folder_removal.py
    tests/postgres/test_embedded_postgres.py)
OCI=(tests/runtimes/oci/test_runtime.py tests/runtimes/test_conformance_surroundings.py tests/e2e/test_engines.py)

if ! "$PYTHON" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "no $PYTHON >= 3.11 with venv: skipping the checks on the system's own Python"
    exit
fi
if ((EUID == 0)); then
    user=jobplane-ci
    id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/sh "$user"
    home=$(getent passwd "$user" | cut -d: -f6)
    become=(runuser -u "$user" --)
else
    user=$(id -un)
    home=$PWD/build/ordinary
    become=()
fi
checkout=$home/jobplane

# Clean, but for how pip reaches packages.
mapfile -t network < <(env | grep -E '^(PIP_|SSL_CERT_|NODE_EXTRA_CA_CERTS|npm_config_|[a-zA-Z]+_(proxy|PROXY)=)' || true)
as_user() {
    "${become[@]}" env -i HOME="$home" USER="$user" LANG=C.UTF-8 PATH="$home/bin" "${network[@]}" \
        sh -ec 'cd "$0" && exec "$@"' "$checkout" "$@"
}

link_programs() {
    ln -sf /usr/bin/* "$home/bin"
    (cd "$home/bin" && rm -f "${MISSING[@]}")
}

# tar ends with 1 if a folder changed meanwhile: the set-up beside us puts .venv and the built page there, which we leave out.
copy_checkout() {
    { tar -c --exclude-vcs --exclude-from=<(sed 's|^/||; s|/$||' .gitignore) . || (($? == 1)); } | tar -x --no-same-owner -C "$checkout"
}

setup() {
    rm -rf "$home/bin" "$home/pipx" "$home/.local" "$checkout"
    mkdir -p "$home/bin" "$checkout"
    link_programs
    copy_checkout
    # The home, too: if the user is there without one, `mkdir` has made it, as root.
    if ((EUID == 0)); then chown "$user": "$home"; chown -R "$user": "$home/bin" "$checkout"; fi
    as_user make setup "PYTHON=$PYTHON"
    as_user .venv/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir build .
    # With the newest release of each dependency that pyproject.toml allows.
    as_user sh -ec '"$1" -m venv "$HOME/pipx"
        "$HOME/pipx/bin/pip" install --quiet pipx
        "$HOME/pipx/bin/pipx" install --quiet --force "$(echo build/jobplane-*.whl)[postgres]"' - "$PYTHON"
}

check() {
    link_programs # those, too, that were installed meanwhile
    as_user make demo
    as_user .venv/bin/python -m pytest -n 2 --dist worksteal "${PARTS[@]}"
    # Containers without a daemon; kubectl and busybox are where the machine has them.
    if [ -x /bin/busybox ] && command -v skopeo crun newuidmap >/dev/null; then
        as_user env PATH=/usr/local/bin:/usr/bin:/bin .venv/bin/python -m pytest -n 2 --dist loadfile "${OCI[@]}" -k oci
    fi
    # The wheel as its users install it, from a folder that is no checkout.
    as_user sh -ec 'cd "$HOME" && .local/bin/jobplane demo'
}

case $1 in
    setup) setup ;;
    test) check ;;
esac
