# A fresh machine needs a POSIX shell, make and Python 3.11 or newer; the rest is fetched into .venv and the
# user's cache. PYTHON=/path/to/python chooses an interpreter. MINUTES=n ends `make test`, `e2e` and `slow` after that
# time, with a list of the files that were not run.

PYTHON =
VENV = .venv
BIN = $(VENV)/bin
INGEST = $(BIN)/ingest
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet install
LIMIT = $(if $(MINUTES),--minutes $(MINUTES))
PINS = $$(grep -c '==' $(1)) packages
# Install what a lock file pins. pip alone is silent for minutes, or prints hundreds of lines: shown are large downloads, every
# tenth package and the two steps at the end; if pip fails, all that it said besides.
HASHED = { $(BIN)/python -m pip --disable-pip-version-check install --progress-bar off --require-hashes -r $(1) 2>&1; echo "ended $$?"; } | \
	awk -v all="$$(grep -c '==' $(1))" ' \
	    /^ended / { code = $$2; next } \
	    /^ *(DEPRECATION|Requirement already satisfied|Using cached)/ { next } \
	    /^(Collecting|Processing) / { if (++n % 10 == 0) { print "  " n " of " all " packages"; fflush() } next } \
	    /^ *Downloading .*\([0-9][0-9.]* MB\)/ { if (substr($$NF == "MB)" ? $$(NF - 1) : $$NF, 2) + 0 >= 20) { sub(/^ */, ""); print "  " $$0; fflush() } next } \
	    /^Building wheels/ { print "  building what is sent as source ..."; fflush(); next } \
	    /^Installing collected packages/ { print "  unpacking ..."; fflush(); next } \
	    { said[++lines] = $$0 } \
	    END { if (code != 0) for (i = 1; i <= lines; i++) print said[i]; exit code }'
COMPILE = .venv-lock/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --quiet $(UPGRADE)

.PHONY: help demo test e2e slow lint lock jars dist mutants histories bench bench-full clean distclean

help:
	@echo 'make demo       set up, run the examples of conf/ over messages of today in demo/, from messages to mirrors, show the result'
	@echo 'make test       set up and run the tests of every part in three processes; no services, no root'
	@echo 'make e2e        run those that use Spark for long or real parts: kills, a broker, databases, a store, a cluster; what cannot be had is skipped'
	@echo 'make slow       run the long tests: random histories through Spark, every cut into batches, rebuilds, epochs'
	@echo 'make mutants    plant known faults and see the tests catch each; make histories: a million random histories'
	@echo 'make bench      the same batch by this and by what people would write today; bench-full: in full, about an hour'
	@echo 'make dist       build the wheel and the source archive, the same bytes each time'
	@echo 'make lint       style, types and layers'
	@echo 'make lock       write the lock files (UPGRADE=--upgrade: of the newest versions) and the bill of materials'
	@echo 'make jars       get the pinned jars, and prepare the class archive that makes starts faster'
	@echo 'make clean      delete what demo and tests wrote; distclean deletes .venv too'

demo: $(VENV)/.ready
	@$(INGEST) jars fetch --no-archive >/dev/null
	@$(BIN)/python samples/make_shop.py --demo demo
	$(INGEST) run demo/*.yaml
	@$(BIN)/python samples/compare.py demo
	@$(BIN)/python samples/two_batches.py
	@$(INGEST) report demo/*.yaml --out demo/reports

test: $(VENV)/.ready-dev
	@$(INGEST) jars fetch --no-archive >/dev/null
	$(BIN)/python -m tests.parallel --processes 3 $(LIMIT) -m 'not e2e and not slow'

e2e: $(VENV)/.ready-e2e
	@$(INGEST) jars fetch --no-archive >/dev/null
	$(BIN)/python -m tests.parallel $(LIMIT) -m 'e2e and not slow'

slow: $(VENV)/.ready-dev
	@$(INGEST) jars fetch --no-archive >/dev/null
	$(BIN)/python -m tests.parallel $(LIMIT) -m slow

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

mutants: $(VENV)/.ready-dev
	$(BIN)/python -m benchmarks.mutants

histories: $(VENV)/.ready-dev
	$(BIN)/python -m benchmarks.histories plain
	$(BIN)/python -m benchmarks.histories spark

bench: $(VENV)/.ready-bench
	@$(INGEST) jars fetch --quiet >/dev/null
	$(BIN)/python -m benchmarks

bench-full: $(VENV)/.ready-bench
	@$(INGEST) jars fetch --quiet >/dev/null
	$(BIN)/python -m benchmarks --full

dist: $(VENV)/.ready
	@$(BIN)/python -m hatchling build --directory dist >/dev/null
	@cp dist/ingest-*.whl dist/ingest.zip && ls dist/*

lock:
	@test -d .venv-lock || python3 -m venv .venv-lock
	@.venv-lock/bin/python -m pip --disable-pip-version-check --quiet install cyclonedx-bom==7.5.0 uv==0.13.9
	@$(COMPILE) --group build -o requirements.lock >/dev/null
	@$(COMPILE) --extra dev --extra bench --group build -c requirements.lock -o requirements-dev.lock >/dev/null
	@$(COMPILE) --extra jre --extra serve --group build -c requirements-dev.lock -o requirements-jre.lock >/dev/null
	@$(COMPILE) --extra dev --extra e2e --group build -c requirements-dev.lock -o requirements-e2e.lock >/dev/null
	@.venv-lock/bin/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible \
	    --output-format JSON -o sbom.json 2>/dev/null
	@.venv-lock/bin/python -c "import json, re; bom = json.load(open('sbom.json')); bom['metadata'].pop('tools', None); \
	    open('sbom.json', 'w').write(re.sub('\"https?://[^\"]*/simple/', '\"/', json.dumps(bom, indent=1)))"
	@$(BIN)/python -m docs.bill

jars: $(VENV)/.ready
	@$(INGEST) jars fetch

clean:
	rm -rf build dist demo conf/lake* spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name $(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) .venv-lock

$(VENV)/.ready: pyproject.toml requirements.lock
	@for python in $(PYTHON) python3 python3.11 python3.12 python3.13 python3.14 none; do \
	    if [ $$python = none ]; then \
	        echo 'error: no Python 3.11 or newer was found on PATH: install one, or type make PYTHON=/path/to/python' >&2; \
	        exit 2; \
	    fi; \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
	done; \
	$$python -m venv $(VENV) >/dev/null || { \
	    rm -rf $(VENV); \
	    echo "error: $$python cannot make a virtual environment: install its venv package" \
	        "(on Debian and Ubuntu: apt-get install python3-venv)" >&2; \
	    exit 2; \
	}
	@echo "Installing $(call PINS,requirements.lock) into $(VENV) (a minute or more: PySpark alone is 450 MB) ..."
	@$(call HASHED,requirements.lock)
	@echo 'Installing ingest itself ...'
	@$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from ingest.spark.java import find; find()' 2>/dev/null || { \
	    echo 'No Java 17 or newer was found: installing one into $(VENV) ...'; \
	    $(call HASHED,requirements-jre.lock); \
	}
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready requirements-dev.lock
	@echo "Installing what the tests need: $(call PINS,requirements-dev.lock), most of which are there already ..."
	@$(call HASHED,requirements-dev.lock)
	@touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	@echo "Installing what the benchmark needs: $(call PINS,requirements-dev.lock), most of which are there already ..."
	@$(call HASHED,requirements-dev.lock)
	@touch $@

$(VENV)/.ready-e2e: $(VENV)/.ready-dev
	@echo "Installing what the end-to-end tests need: $(call PINS,requirements-e2e.lock), most of which are there already ..."
	@$(call HASHED,requirements-e2e.lock)
	@touch $@
