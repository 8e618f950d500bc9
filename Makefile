# Everything a contributor does; `make` alone lists it. Each target does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
# Some images turn this on: every process of a test would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
SOURCES := .
RESULTS := build/bench
PEERS := bench/peers
PYTEST := $(BIN)/python -m pytest
# Most tests wait for servers half of their time: two workers for each of two cores. A file's tests share
# their servers, and stay together. One file needs no workers.
WORKERS := 4
PARALLEL = $(if $(findstring .py,$(ARGS)),,-n $(WORKERS) --dist loadfile --no-loadscope-reorder)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## create .venv, install the package and its tools, build the extensions
	@.ci/setup dev

.PHONY: setup-test
setup-test:
	@.ci/setup test

.PHONY: demo
demo: ## PostgreSQL, the daemon and Spark on this machine, in about a minute; ARGS=--no-spark: without Spark
	@.ci/setup $(if $(findstring --no-spark,$(ARGS)),demo-without-spark,demo)
	@$(BIN)/gaussdecode demo $(ARGS)

.PHONY: build
build: ## build the extensions in place
	@.ci/setup dev

.PHONY: build-debug
build-debug: setup ## build the extensions with bounds checks and without optimisation
	GAUSSDECODE_BUILD=debug $(BIN)/python setup.py build_ext --inplace --force

.PHONY: fmt
fmt: setup ## format and fix what can be fixed
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

.PHONY: check
check: setup ## lint, types, import contracts, spelling, generated pages
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/cython-lint gaussdecode
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	$(BIN)/python docs/generate.py --check
	$(BIN)/python config/grafana/generate.py --check

.PHONY: test
test: setup-test ## every test, against real PostgreSQL servers; ARGS=tests/x/test_y.py: one file
ifeq ($(shell id -u),0)
	$(PYTEST) $(PARALLEL) $(ARGS)
else
	is_empty=; $(PYTEST) $(PARALLEL) -m "not machine" $(ARGS) || { [ $$? = 5 ] || exit 1; is_empty=yes; }; \
	if $(PYTEST) --collect-only -m machine $(ARGS) >/dev/null; then \
		sudo env PYTHONDONTWRITEBYTECODE=1 $(PYTEST) -p no:cacheprovider -m machine $(ARGS); \
	else [ -z "$$is_empty" ]; fi
endif

.PHONY: test-unit
test-unit: WORKERS := 3
test-unit: setup ## the tests that need no server, Java, browser or network, in under two minutes
	$(PYTEST) --unit $(PARALLEL) $(ARGS)

.PHONY: test-crash
test-crash: setup-test ## kill and cut the power at every step of a commit
	$(PYTEST) tests/crash $(ARGS)

.PHONY: test-integration
test-integration: setup-test ## the daemon against real PostgreSQL servers, with faults
	$(PYTEST) tests/integration $(ARGS)

.PHONY: test-spark-versions
test-spark-versions: setup-test ## Spark's tests with the oldest supported Spark and the newest, the lake's with those between too
	$(BIN)/python tests/kit/jars.py 4.1 4.2
	PYTHONPATH=$(CURDIR)/.venv/pyspark-4.0 $(PYTEST) -W ignore -p no:unraisableexception tests/spark $(ARGS)
	PYTHONPATH=$(CURDIR)/.venv/pyspark-4.1 $(PYTEST) -W ignore -p no:unraisableexception tests/spark/iceberg_cases.py tests/spark/delta_cases.py $(ARGS)
	PYTHONPATH=$(CURDIR)/.venv/pyspark-4.2 $(PYTEST) -W ignore -p no:unraisableexception tests/spark/delta_cases.py $(ARGS)
	$(PYTEST) tests/spark $(ARGS)

.PHONY: test-cluster
test-cluster: setup-test ## Spark's standalone cluster of three workers that share a store only; killed parts; Airflow
	@[ -x build/airflow/bin/airflow ] || { $(BIN)/python -m venv build/airflow \
		&& build/airflow/bin/pip install --quiet apache-airflow==3.3.2; }
	$(PYTEST) tests/spark/cluster_cases.py $(ARGS)

# Versions are the ones that docs/mirror.md names.
.PHONY: test-stores
test-stores: setup-test ## mirror and tables on real HDFS, MinIO (needs Go), Azurite (needs npm) and Hive's metastore
	@[ -x build/stores/minio ] || ! command -v go >/dev/null || GOBIN=$(CURDIR)/build/stores \
		go install github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
	@[ -d build/stores/node_modules/azurite ] || ! command -v npm >/dev/null \
		|| npm install --silent --no-audit --no-fund --prefix build/stores azurite@3.35.0
	$(PYTEST) tests/integration/store_cases.py $(ARGS)
	PYTHONPATH=$(CURDIR)/.venv/pyspark-4.0 $(PYTEST) -W ignore -p no:unraisableexception tests/spark/hive_cases.py $(ARGS)

.PHONY: test-image
test-image: setup-test image ## the container image: kills, an upgrade and a server that is away; the manifests by Kubernetes' schemas
	@[ -x build/kubernetes/bin/kubernetes-validate ] || { $(BIN)/python -m venv build/kubernetes \
		&& build/kubernetes/bin/pip install --quiet kubernetes-validate==1.37.0; }
	for version in 1.29 1.33 1.37; do \
		build/kubernetes/bin/kubernetes-validate --strict --quiet -k $$version config/kubernetes/orders.yaml; \
	done
	$(PYTEST) tests/integration/image_cases.py $(ARGS)

.PHONY: test-sanitize
test-sanitize: setup ## parsers, queues and collector under AddressSanitizer and UBSan, in a copy
	PYTHON=$(CURDIR)/$(BIN)/python tests/sanitize.sh $(ARGS)

.PHONY: test-mutations
test-mutations: setup-test ## take guards out of the code one by one: each removal must make a test fail; an hour
	PYTHONPATH=tests $(BIN)/python -m mutations.run $(ARGS)

.PHONY: bench
bench: setup-test ## every bench that needs no peer, in under ten minutes, to build/bench/
	@mkdir -p $(RESULTS)
	$(BIN)/python bench/decode.py --out $(RESULTS)/decode.json
	$(BIN)/python bench/live.py --shape narrow --rows 400000 --out $(RESULTS)/live-narrow.json
	$(BIN)/python bench/live.py --shape wide --rows 100000 --out $(RESULTS)/live-wide.json
	$(BIN)/python bench/live.py --shape changes --rows 200000 --out $(RESULTS)/live-changes.json
	$(BIN)/python bench/live.py --shape small --rows 200000 --out $(RESULTS)/live-small.json
	$(BIN)/python bench/replay.py --shape narrow --times 8 --runs 2 --out $(RESULTS)/replay-narrow.json
	$(BIN)/python bench/replay.py --shape wide --times 6 --runs 2 --out $(RESULTS)/replay-wide.json
	$(BIN)/python bench/gaussdb.py --bytes 1500000000 --decoders 2 4 --curve 10 100 \
		--curve-bytes 500000000 --runs 2 --out $(RESULTS)/gaussdb.json
	$(BIN)/python bench/latency.py --tables 1 16 --seconds 5 --out $(RESULTS)/latency.json
	$(BIN)/python bench/start.py --runs 3 --out $(RESULTS)/start.json
	$(BIN)/python bench/scale.py --short --out $(RESULTS)/scale.json

.PHONY: bench-full
bench-full: setup-test ## the same with enough data to be quoted, in about an hour
	@mkdir -p $(RESULTS)
	$(BIN)/python bench/decode.py --out $(RESULTS)/decode.json
	for shape in narrow wide changes small; do \
		$(BIN)/python bench/live.py --shape $$shape --out $(RESULTS)/live-$$shape.json; \
	done
	for shape in narrow wide; do \
		$(BIN)/python bench/replay.py --shape $$shape --runs 5 --out $(RESULTS)/replay-$$shape.json; \
	done
	$(BIN)/python bench/cost.py --out $(RESULTS)/cost.json
	$(BIN)/python bench/gaussdb.py --out $(RESULTS)/gaussdb.json
	$(BIN)/python bench/latency.py --out $(RESULTS)/latency.json
	$(BIN)/python bench/start.py --out $(RESULTS)/start.json
	$(BIN)/python bench/scale.py --out $(RESULTS)/scale.json
	$(BIN)/python bench/scale.py --large --curves bytes --out $(RESULTS)/scale-large.json

.PHONY: bench-check
bench-check: setup ## is a row dearer than in the last release? CPU time and calls for memory, in three minutes
	$(BIN)/python bench/check.py $(ARGS)

.PHONY: soak
soak: setup-test ## load, faults and alerts for half an hour; ARGS="--minutes 5 --only cut" is shorter
	@mkdir -p $(RESULTS)
	$(BIN)/python bench/soak.py --out $(RESULTS)/soak.json $(ARGS)

.PHONY: bench-plot
bench-plot: setup ## draw the results in build/bench/ to docs/images/
	$(BIN)/pip install --quiet 'matplotlib>=3.8'
	$(BIN)/python bench/plot.py $(RESULTS) docs/images

.PHONY: bench-peers
bench-peers: setup-test ## others on the same slot, in fifteen minutes; needs Java 17 and Node.js
	@test -x $(PEERS)/.venv/bin/python || $(BIN)/python -m venv $(PEERS)/.venv
	$(PEERS)/.venv/bin/pip install --quiet --requirement $(PEERS)/requirements.txt
	npm install --silent --no-audit --no-fund --prefix $(PEERS)
	@mkdir -p $(RESULTS)
	$(BIN)/python bench/peers.py --out $(RESULTS)/peers.json $(ARGS)

.PHONY: docs
docs: setup ## write the generated pages again
	$(BIN)/python docs/generate.py
	$(BIN)/python config/grafana/generate.py

.PHONY: pictures
pictures: setup-test ## take the pictures of the status page again, in about two minutes
	$(BIN)/python docs/pictures.py

.PHONY: annotate
annotate: setup ## Cython's HTML: yellow lines in hot functions are a review question
	$(BIN)/cython -3 --annotate $$(git ls-files 'gaussdecode/*.pyx')

.PHONY: wheel
wheel: setup ## build the sdist and a wheel for this Python, stripped and audited, into dist/
	$(BIN)/python release/wheels.py --here

.PHONY: wheels
wheels: setup ## the same for each of Python 3.11 to 3.14 that is on this machine
	$(BIN)/python release/wheels.py

.PHONY: deb
deb: setup ## the Debian package of this machine's Debian, with a wheel and what is locked, into dist/
	rm -rf build/deb
	$(BIN)/python release/wheels.py --out build/deb /usr/bin/python3
	release/deb.sh build/deb/*.whl dist

.PHONY: image
image: setup ## a container image with what is locked, into dist/; needs podman, runc and mmdebstrap, or BASE=IMAGE
	rm -rf build/image
	$(BIN)/python release/wheels.py --out build/image $$(command -v python3.11)
	release/image.sh build/image/*.whl dist

UV_COMPILE = $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-annotate \
	--custom-compile-command 'make lock'

.PHONY: lock
lock: setup ## write all lock files again: the newest of the package's needs and of all tools, with checksums
	$(BIN)/pip install --quiet 'uv>=0.5'
	$(UV_COMPILE) --python-version 3.11 --upgrade --output-file requirements.lock pyproject.toml
	printf '%s\n' pip 'setuptools>=77' 'cython>=3.1' wheel >build/build.in
	$(UV_COMPILE) --python-version 3.11 --upgrade --output-file .ci/build.lock build/build.in
	for extra in demo dev; do \
		$(UV_COMPILE) --python-version 3.11 --upgrade --extra $$extra --no-emit-package gaussdecode --constraint requirements.lock \
			--constraint .ci/build.lock --output-file .ci/$$extra.lock pyproject.toml; \
	done
	for file in tests/kit/locked/*.txt; do \
		sed -n 's/^\(.*==[^ ]*\).*/\1/p' $$file >build/pins.in; \
		$(UV_COMPILE) --python-version 3.12 --no-deps --output-file $$file build/pins.in; \
	done

.PHONY: sbom
sbom: wheel ## install what is locked in a fresh environment and describe it: dist/*.cdx.json
	$(BIN)/python -m venv --clear build/locked
	build/locked/bin/pip install --quiet --require-hashes --requirement requirements.lock
	build/locked/bin/pip install --quiet --no-deps --no-index --find-links dist gaussdecode
	$(BIN)/python release/sbom.py --environment build/locked/bin/python dist/gaussdecode.cdx.json

.PHONY: version
version: setup ## VERSION=1.2.0: the number in all files, and Unreleased becomes its section of the changelog
	$(BIN)/python release/changelog.py $(VERSION)

.PHONY: release
release: setup ## wheels, sdist, Debian package, image, SBOM, checksums, provenance: into build/release/; publishes nothing
	$(BIN)/python release/assemble.py

.PHONY: clean
clean: ## remove what was built; .venv stays
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-landing
	find gaussdecode \( -name '*.so' -o -name '*.c' -o -name '*.html' -o -name __pycache__ \) -prune -exec rm -rf {} +
