# `make finetune` runs the quickstart, `make test` the tests; each installs its requirements into .venv.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
INSTALLED := pyproject.toml setup.py package-lock.json deploy/laptop/install.sh
SOURCES := setup.py trainwright components operators pipelines dags quickstart docs tests bench
# Precompiled bytecode halves the startup time; see deploy/laptop/install.sh.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help finetune retrain-demo test test-fast test-slow test-wide acceptance goldens behaviour conformance airflow-matrix chaos fuzz bench runtimes runtimes-gpu gpu-check docs pictures components edges interfaces schemas environment-locks image-locks images-test coverage lint prose typecheck format clean clean-runs

help:
	@echo "make finetune [NAME=..] [MODEL=hf://org/name|path] [DATASET=..] [COLUMNS=json] [LAYOUT=..] [EXPORT=file:///..] [SETTINGS=json] [KEEP=1] [ORCHESTRATOR=airflow]"
	@echo "make retrain-demo"
	@echo "make test | test-fast | test-slow [ARGS=\"-k words --durations=30\"] [WORKERS=1]"
	@echo "make test-wide [PARTS=\"airflow kfp\" | SINCE=origin/main]"
	@echo "make acceptance | goldens | behaviour | conformance | airflow-matrix | chaos | fuzz | bench | runtimes | runtimes-gpu | gpu-check | docs | pictures | components | edges | interfaces | schemas | environment-locks | image-locks | images-test | coverage | lint | prose | format | clean | clean-runs"

# Passed by the environment and unexpanded: no shell sees them, and neither does a list of processes.
INPUTS := NAME MODEL DATASET COLUMNS LAYOUT EXPORT SETTINGS ORCHESTRATOR KEEP
unexport $(INPUTS)
$(foreach input,$(INPUTS),$(eval export TRAINWRIGHT_FINETUNE_$(input) = $$(value $(input))))

finetune: .venv/.ready-$(if $(filter airflow,$(value ORCHESTRATOR)),airflow,quickstart)
	@$(PY) -m trainwright.quickstart

# The weekly retraining, three times in a row: with new, unchanged and extended data.
retrain-demo: .venv/.ready-airflow
	@$(PY) -m trainwright.quickstart.retrain_demo

# Fast and medium: 10 minutes on two cores. WORKERS=1 runs one test at a time.
test: .venv/.ready-dev
	$(PY) tests/tiers.py fast medium $(ARGS)

# No servers, no processes: 75 seconds.
test-fast: .venv/.ready-dev
	$(PY) tests/tiers.py fast $(ARGS)

# End to end, faults, kills: 26 minutes.
test-slow: .venv/.ready-dev
	$(PY) tests/tiers.py slow $(ARGS)

# Other versions, other tools, more of the same; not part of CI. PARTS="airflow kfp" selects, SINCE=HEAD~3 what these changes ask for.
test-wide: .venv/.ready-dev
	$(PY) tests/tiers.py wide $(if $(filter command line,$(origin PARTS)),"--parts=$(PARTS)") $(if $(filter command line,$(origin SINCE)),"--since=$(SINCE)") $(ARGS)

# Scenes of a user of a cluster, on the embedded one or on that of KUBECONFIG: docs/acceptance.md. ARGS="-k ..." selects.
# KUBECONFIG counts only on this command line: that of the environment is not taken for a cluster to play on.
acceptance: export TRAINWRIGHT_ACCEPTANCE_KUBECONFIG = $(if $(filter command line,$(origin KUBECONFIG)),$(value KUBECONFIG))
acceptance: export TRAINWRIGHT_ACCEPTANCE_AIRFLOW = $(or $(AIRFLOW),$(if $(TRAINWRIGHT_ACCEPTANCE_KUBECONFIG),,yes))
$(foreach option,IMAGE KFP_HOST STORAGE_CLASS ACCESS_MODE RESTART LOSE_NODE FIND_NODE,\
  $(eval acceptance: export TRAINWRIGHT_ACCEPTANCE_$(option) = $$(value $(option))))
acceptance: .venv/.ready-dev
	@mkdir -p build
	$(PY) -m pytest tests/acceptance -n $(or $(WORKERS),2) --junitxml build/acceptance.xml $(ARGS)

# Every recorded scenario of the real controllers, as a table by area: about 3 minutes. ARGS: prefixes of areas or names.
goldens: .venv/.ready-dev
	$(PY) tests/materialize/table.py
	$(PY) tests/behaviour_recordings.py $(ARGS)

# What controllers do with Jobs, JobSets and TrainJobs, and what the node does with pods, as recorded on a real cluster.
behaviour: .venv/.ready-dev
	$(PY) tests/behaviour_recordings.py $(ARGS)
	TRAINWRIGHT_ISOLATION=on $(PY) tests/kubelet_recordings.py

# Tests the API server with recordings, kubectl, the official Python client and the Kubeflow SDK; prints a table: about 3 minutes.
conformance: .venv/.ready-dev
	TRAINWRIGHT_CHAOS=1 $(PY) tests/conformance/table.py $(ARGS)

# Coverage of the fast tests, as a report without a threshold.
coverage: .venv/.ready-dev
	$(PY) tests/tiers.py fast --coverage -q $(ARGS)

# What may happen to a task under a real Airflow, every scene twenty times: about two hours. ARGS: such as -k triggerer.
airflow-matrix: .venv/.ready-dev
	TRAINWRIGHT_ROUNDS=$(or $(ROUNDS),20) TRAINWRIGHT_AIRFLOW=$(AIRFLOW) TRAINWRIGHT_EXECUTOR=$(EXECUTOR) $(PY) -m pytest tests/e2e/test_airflow_matrix.py $(ARGS)

# Fault and property tests with many more cases; not part of CI.
chaos: .venv/.ready-dev
	TRAINWRIGHT_CHAOS=1 $(PY) -m pytest -m slow -k "kill or fault or interrupted or whole_chain" --timeout 3600 $(ARGS)

fuzz: .venv/.ready-dev
	HYPOTHESIS_PROFILE=fuzz $(PY) -m pytest -m "not slow" -k "property" --timeout 3600 $(ARGS)

bench: .venv/.ready-dev
	@for script in $(filter-out bench/gpu_check.py, $(wildcard bench/*.py)); do echo "== $$script"; $(PY) $$script || exit 1; done

# Trains on this machine's GPUs through TrainJobs, about 4 minutes: needs torch's CUDA build. ARGS=--cpu pretends a GPU.
gpu-check: .venv/.ready-dev
	$(PY) bench/gpu_check.py $(ARGS)

# Trains on every stock runtime, and prints a table: 10 minutes. ARGS: beginnings of runtimes; --quick: what CI runs.
runtimes: .venv/.ready-dev
	$(PY) bench/runtimes $(ARGS)

# What needs an NVIDIA GPU (NCCL, bf16, QLoRA): needs torch's CUDA build in .venv.
runtimes-gpu: .venv/.ready-dev
	$(PY) bench/runtimes --gpu $(ARGS)

# Regenerates the pages and manifests that are generated from code.
docs: .venv/.ready-dev
	$(PY) docs/readmes.py
	$(PY) docs/guides_page.py
	$(PY) docs/chart_files.py
	.venv/bin/trainwright rbac --for kfp --namespace kubeflow > deploy/rbac.yaml
	.venv/bin/trainwright rbac --for airflow --namespace airflow --credentials > deploy/rbac-airflow.yaml
	.venv/bin/trainwright rbac --for kfp --namespace kubeflow --mode jobset > deploy/rbac-jobset.yaml
	.venv/bin/trainwright rbac --for kfp --namespace kubeflow --mode jobset --mpi-flux > deploy/rbac-jobset-mpi-flux.yaml

# Takes the pictures of the page in docs/pictures: needs chromium and chromedriver, as Debian packages them.
pictures: .venv/.ready-dev
	$(PY) tests/page_pictures.py

# What the images install, by version and hash.
image-locks: .venv/.ready-dev
	for image in launcher trainer controller; do \
	  { echo "# What the image $$image installs, by version and hash. Renew all: make image-locks"; \
	    $(LOCK) --extra $$image pyproject.toml; } > deploy/images/$$image.txt.new && mv deploy/images/$$image.txt.new deploy/images/$$image.txt || exit 1; \
	done
	{ echo "# The chat templates of TRL, which the report on a dataset reads; nothing in this image imports it, and torch is missing."; \
	  awk '/^trl==/ {found = 1} found {print} found && !/\\$$/ {exit}' deploy/images/trainer.txt; } >> deploy/images/launcher.txt
	{ echo "# What builds the package and lists what an image contains, by version and hash. Renew all: make image-locks"; \
	  $(LOCK) deploy/images/build.in; } > deploy/images/build.txt.new && mv deploy/images/build.txt.new deploy/images/build.txt

# What the environments for images install, by version and hash, the CPU builds of torch too. Needs PyPI and download.pytorch.org.
environment-locks: .venv/.ready-dev
	$(PY) -m trainwright.controlplane.environments.lock

LOCK := .venv/bin/uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --no-emit-find-links --no-emit-index-url

# Builds the images of the launcher and of the controller on a base of their own and starts them: needs root, buildah and debootstrap.
images-test: .venv/.ready-dev
	TRAINWRIGHT_IMAGES_TEST=1 $(PY) -m pytest tests/deploy/test_images.py --timeout 1800 $(ARGS)

# Components and pipelines as YAML, for `load_component_from_file` and for upload: build/components.
components: .venv/.ready-dev
	$(PY) -m trainwright.pipelines.build build/components

# What the edges say of settings: signatures, docstrings, the table for DAGs, a page of docs; from the request models.
edges: .venv/.ready-dev
	PYTHONPATH=docs $(PY) docs/edges.py

# The interfaces of components and pipelines, which tests compare.
interfaces: .venv/.ready-dev
	$(PY) tests/components/interfaces.py

# The schemas of all kinds, from published ones: Kubernetes' from PyPI, those of Trainer and JobSet from the shared folder.
schemas: .venv/.ready-dev
	.venv/bin/uv pip install -q --no-deps --target build/kubernetes-schemas kubernetes-validate==1.37.0
	PYTHONPATH=tests $(PY) -m recorders.published_schemas

# The edges too, which are links in `trainwright/`.
typecheck: .venv/.ready-dev
	.venv/bin/mypy

lint: typecheck
	.venv/bin/ruff check $(SOURCES)
	.venv/bin/ruff format --check $(SOURCES)
	.venv/bin/lint-imports --no-cache --no-logo
	.venv/bin/oxlint --deny-warnings trainwright/ui/static/js
	PYTHONPATH=docs $(PY) -m prose

# Removes from docs/prose/known.txt what no longer occurs; adds nothing.
prose: .venv/.ready-dev
	PYTHONPATH=docs $(PY) -m prose --update

format: .venv/.ready-dev
	.venv/bin/ruff check --fix-only -q $(SOURCES)
	.venv/bin/ruff format -q $(SOURCES)

# Does not delete runs/, which contains checkpoints and exports.
clean:
	rm -rf .venv trainwright/ui/static/vendor tests/ui/browser/axe.min.js .clients .coverage build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Deletes all runs with their workspaces and exports.
clean-runs:
	@du -sh runs/* 2>/dev/null || echo "runs/ is empty"
	rm -rf runs

.venv/.ready-quickstart: $(INSTALLED)
	@deploy/laptop/install.sh quickstart
	@touch $@

.venv/.ready-airflow: $(INSTALLED)
	@deploy/laptop/install.sh quickstart,airflow
	@touch $@ .venv/.ready-quickstart

.venv/.ready-dev: $(INSTALLED)
	@deploy/laptop/install.sh quickstart,airflow,dev
	@touch $@ .venv/.ready-quickstart .venv/.ready-airflow
