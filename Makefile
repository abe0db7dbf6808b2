# The contributor's door: `make` prints what there is. All it needs is Python 3.11 or newer and make; where there is no uv,
# it is put into .uv/ by pip, and uv puts everything else into .venv/.
PYTHON  ?= python3
WORKERS ?= 3
N       ?= 60
MINUTES ?= 10
SEED    ?= 1
SF      ?= 1
SPARK43 ?= tests/spark/test_session.py tests/spark/test_connect.py tests/spark/test_inputs.py

UV  := $(or $(shell command -v uv 2>/dev/null),$(CURDIR)/.uv/bin/uv)
RUN := $(UV) run --frozen

.DEFAULT_GOAL := help
.PHONY: help setup demo check format test test-all test-spark43 fuzz-lake fuzz-refresh fuzz-delta fuzz-api chaos chaos-ingest bench-lake bench-refresh bench-service bench-ingest bench-query docs clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: | $(UV) ## everything into .venv/ (the other targets do it by themselves)
	$(UV) sync --frozen

demo: | $(UV) ## a lake in a minute: DuckDB and Spark share it, dynamic tables follow, events come over HTTP
	$(RUN) --no-dev lakemill demo

check: | $(UV) ## format, lint, types, layers
	$(RUN) ruff format --check
	$(RUN) ruff check
	$(RUN) mypy
	$(RUN) lint-imports

format: | $(UV) ## write the format, and what lint can mend by itself
	$(RUN) ruff format
	$(RUN) ruff check --fix

test: | $(UV) ## the tests that CI runs
	$(RUN) pytest -n $(WORKERS) --dist loadgroup -m "not slow"

test-all: | $(UV) ## all tests, the slow ones included
	$(RUN) pytest -n $(WORKERS) --dist loadgroup --timeout 1800

test-spark43: | $(UV) ## the session and the reading of lakes on Spark 4.3, in an environment of their own
	$(UV) venv --quiet --allow-existing .venv-spark43
	$(UV) export --quiet --frozen --no-hashes --no-emit-project --prune pyspark --output-file .venv-spark43/locked.txt
	$(UV) pip install --quiet --python .venv-spark43 --requirement .venv-spark43/locked.txt --editable . pyspark==4.3.0
	.venv-spark43/bin/python -m pytest -m "not slow" $(SPARK43)

fuzz-lake: | $(UV) ## N random histories (N=1000 SEED=1), half by stock DuckDB alone, half with Lakemill in between
	$(RUN) python -m tests.fuzz --histories $(N) --seed $(SEED)

fuzz-refresh: | $(UV) ## N random courses of dynamic tables (N=1000 SEED=1), judged by DuckDB
	$(RUN) python -m tests.refresh --courses $(N) --seed $(SEED)

fuzz-delta: | $(UV) ## N random queries over random tables (N=3000 SEED=1), their deltas run by DuckDB, without Spark
	$(RUN) python -m tests.core.fuzz --queries $(N) --seed $(SEED)

fuzz-api: | $(UV) ## random requests by the API's own description for MINUTES (MINUTES=10 SEED=1); none may get a 500
	$(RUN) python -m tests.api.fuzz --minutes $(MINUTES) --seed $(SEED)

chaos: | $(UV) ## N kills (N=200 SEED=1) of workers, schedulers and PostgreSQL under a running service, judged by DuckDB
	$(RUN) python -m tests.service.chaos --kills $(N) --seed $(SEED)

chaos-ingest: | $(UV) ## N kills (N=100 SEED=1) of producers, APIs, coordinators, JVMs and PostgreSQL under ingest, judged by a model
	$(RUN) python -m tests.ingest.chaos --kills $(N) --seed $(SEED)

bench-refresh: | $(UV) ## a refresh of each TPC-H query against computing it whole (SF=1)
	$(RUN) python -m bench.refresh --sf $(SF)

bench-lake: | $(UV) ## scan, delta, publish and planning, side by side with plain Spark and stock DuckDB
	$(RUN) python -m bench.lake

bench-query: | $(UV) ## what the gateway costs beside DuckDB in process: small queries, a stream of Arrow, many at once
	$(RUN) python -m bench.query

bench-service: | $(UV) ## a look over 10,000 tables, refreshes a minute, commit to derived commit; KEYS=…: one large refresh on a cluster
	$(RUN) python -m bench.service $(if $(KEYS),--keys $(KEYS))

bench-ingest: | $(UV) ## how fast requests are accepted, compared with INSERT, and how soon they are visible
	$(RUN) python -m bench.ingest
	$(RUN) python -m bench.visible

docs: | $(UV) ## write docs/reference/ anew from the code
	$(RUN) python -m lakemill.cli.reference docs/reference

clean: ## remove what was made here: environments, caches, the demo's lake
	-@test ! -d demo-lake || .venv/bin/lakemill -C demo-lake stop
	rm -rf demo-lake .venv .venv-spark43 .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

$(CURDIR)/.uv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Lakemill needs Python 3.11 or newer; name one with PYTHON=")'
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target .uv uv \
	  || { $(PYTHON) -m venv .uv && .uv/bin/python -m pip install --quiet uv; }
