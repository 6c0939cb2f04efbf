# What can be done here, one target each; `make` alone prints this list. The work is in scripts/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --warn-undefined-variables

PYTHON ?= python3
CLUSTER ?= lab
# Many environments have a NAME of their own, which is none of a drill.
ifeq ($(origin NAME),environment)
NAME := list
endif
NAME ?= list
RUN := .venv/bin/python -m
BOOTSTRAP := command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or newer is needed: apt-get install python3" >&2; exit 1; }; \
	$(PYTHON) -m scripts.bootstrap
# In the lab's surroundings: its kubectl, helm and kubeconfig, its settings of podman.
IN_LAB := $(RUN) scripts.lab run --

# Processes and machines that share two cores may miss a time limit. What failed is run once more, alone, and has to pass; the
# output shows both. Only after status 1, "tests failed": what ended otherwise has not said of every test how it ended.
IF_TESTS_FAILED := status=$$?; [ $$status -eq 1 ] || exit $$status
AGAIN := --last-failed --last-failed-no-failures none

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(if $(filter existing,$(CLUSTER)),tools,bootstrap) ## Everything once: cluster, nodes, image, a training run that loses a pod, a report. CLUSTER=existing uses your KUBECONFIG
	$(RUN) scripts.demo $(CLUSTER)

.PHONY: drill
drill: $(if $(filter existing,$(CLUSTER))$(filter list,$(NAME)),tools,lab) ## Break one thing in a real run: NAME=list|all|a drill's name. CLUSTER=existing IMAGE=... uses your KUBECONFIG
	CLUSTER=$(CLUSTER) $(RUN) scripts.drill $(NAME)

.PHONY: test
test: test-fast lab ## Every test, the demo and the roles on real machines among them
	BASE=auto $(RUN) scripts.image
	$(RUN) scripts.molecule
	.venv/bin/pytest -n 2 --dist worksteal -m "slow and not long" || { $(IF_TESTS_FAILED); .venv/bin/pytest $(AGAIN) -m "slow and not long"; }
	$(IN_LAB) pytest -m "(lab or image) and not long" || { $(IF_TESTS_FAILED); $(IN_LAB) pytest $(AGAIN) -m "(lab or image) and not long"; }

.PHONY: test-fast
test-fast: lint ## The tests that need no cluster and no patience
	.venv/bin/pytest -n 2 --dist worksteal -m "not lab and not image and not slow and not long"

.PHONY: test-long
test-long: test ## Every test, and what takes too long for every change
	$(RUN) scripts.molecule --long
	$(RUN) scripts.lab operators build training-operator trainer kueue kube-router
	$(IN_LAB) pytest -m long --keep long

.PHONY: lint
lint: tools ## Ruff, mypy, yamllint, ansible-lint
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/yamllint --strict .
	PATH="$(CURDIR)/.venv/bin:$$PATH" .venv/bin/ansible-lint --offline --profile production

.PHONY: verify
verify: tools ## Generate schema, reference and golden files again and fail if they differ
	$(RUN) scripts.generate --golden
	git diff --exit-code

.PHONY: lab
lab: bootstrap ## The local cluster: build it, repair it, or bring it back after a reboot
	$(RUN) scripts.lab up

.PHONY: lab-down
lab-down: tools ## Remove the local cluster and everything it made
	$(RUN) scripts.lab down

.PHONY: build-image
build-image: tools ## The trainer image. ENGINE=podman|docker|buildah  BASE=production|local|auto  TAG=...
	$(RUN) scripts.image

.PHONY: package
package: tools ## The chart as build/rankzero-VERSION.tgz, for `helm push`
	$(RUN) scripts.package

.PHONY: bootstrap
bootstrap: ## Check this machine and install what is missing
	@$(BOOTSTRAP)

.PHONY: tools
tools: ## The Python environment only: needs neither root nor apt
	@$(BOOTSTRAP) --tools-only

.PHONY: clean-cache
clean-cache: ## Remove the cache folder (programs, downloads, logs), after lab-down; says what stays
	@$(PYTHON) -m scripts.clean
