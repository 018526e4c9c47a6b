#!/bin/sh
# The virtual environment with everything that the lock names, at those hashes, and this project itself. Safe to repeat;
# without network if all is installed. Called by `make setup` with the folder; PYTHON names another interpreter.
set -eu
venv=$1

# A distribution's Python goes first: it is built with profile-guided optimization, without which (pyenv's default, for
# one) a Job takes a quarter more CPU.
distribution=/usr/bin/python3
"$distribution" -c 'import ensurepip, venv' 2>/dev/null || distribution=python3
for python in "${PYTHON:-$distribution}" python3 python3.14 python3.13 python3.12 python3.11 none; do
    [ "$python" = none ] && { echo "setup: no Python >= 3.11 found: install it, or name it: make setup PYTHON=..." >&2; exit 1; }
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "setup: $python cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
fi

"$venv/bin/python" -m pip --version >/dev/null 2>&1 || { echo "setup: making $venv with $python"; "$python" -m venv "$venv"; }
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
echo "setup: installing what requirements-dev.lock names"
# First of all pip itself: the one that comes with Python 3.11 takes twice as long for the rest.
sed -n '/^pip==/,/[^\\]$/p' requirements-dev.lock | $pip install --require-hashes -r /dev/stdin
$pip install --require-hashes -r requirements-dev.lock
# The lock brings the build's own tools, so that no others are fetched.
$pip --quiet install --no-deps --no-build-isolation --no-index --editable .
# Bytecode even where Python is told not to write it: four processes start at once and would each compile everything.
"$venv/bin/python" -m compileall -q app migrations
echo "setup: done"
