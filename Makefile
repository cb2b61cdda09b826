# Builds, tests and compares the stages. None is named here: bench/ladders.py finds them.

# What the command line sets, bench/options.py reads: STAGE='a "b"' is one word there, which no shell
# reads again. The same name in the environment says nothing.

ifneq ($(shell uname -s),Linux)
$(error needs Linux, found $(shell uname -s): see setup/README.md)
endif

# make and all that it starts use one Python: see python.sh. A Ctrl-C while Python starts would be a
# traceback, or nothing at all: it waits until bench/__main__.py is there.
override PYTHON := $(shell setup/python.sh)
export PYTHON
BENCH := env --block-signal=INT "$(PYTHON)" -m bench

# The folders of the stages of all ladders. Empty on a new machine, where there is no python3 yet.
STAGES := $(shell $(BENCH) ladders stages 2>/dev/null)
CUDA    = $(shell $(BENCH) ladders stages --cuda)
ROOMS   = $(dir $(wildcard $(foreach ladder,$(shell $(BENCH) ladders ladders),\
              $(ladder)/peers/Makefile $(ladder)/data/Makefile)))

include common/flags.mk

# Two goals may build the same files. So each has a make of its own, one after the other, even with
# -j. The stages of one goal are built side by side.
ifneq ($(word 2,$(MAKECMDGOALS)),)
.NOTPARALLEL:
.PHONY: $(MAKECMDGOALS)
$(sort $(MAKECMDGOALS)):
	@$(MAKE) --no-print-directory '$(subst ','\'',$@)'
else

all: $(STAGES) ## build every stage that this machine can build
	@if [ $(words $^) = 0 ]; then \
	    setup/deps.sh run && stages=$$($(BENCH) ladders stages) && [ "$$stages" ] && \
	        $(MAKE) all STAGES="$$stages"; \
	elif ! command -v $(NVCC) >/dev/null; then \
	    echo 'Without nvcc: `make sim` builds the CUDA stages for a simulated device,'; \
	    echo 'and `make check STAGE=NAME` tests one of them on it.'; \
	fi

$(STAGES):
	@if [ -e $@/*.cu ] && ! command -v $(NVCC) >/dev/null; then \
	    echo "$@: left out, found no $(NVCC) (the CUDA toolkit) in PATH"; \
	else \
	    $(MAKE) --no-print-directory -C $@; \
	fi

test: ## install what the tests need, build, test all (FULL=1: in all ways)
	@setup/deps.sh test
	-@setup/deps.sh # for bench, profiles and report: without the packages their tests are skipped
	@$(MAKE) --no-print-directory -C tests

lint: ## look for faults that no test finds: layout, kinds of bugs, prose
	@setup/deps.sh lint
	@$(MAKE) --no-print-directory --keep-going -C tests/lint

test-gpu: all ## test the CUDA stages on a GPU, also under compute-sanitizer
	$(MAKE) -C tests test-gpu

sim: ## build the CUDA stages for a simulated device: train.sim in its folder
	@for stage in $(CUDA); do \
	    $(MAKE) --no-print-directory -C $$stage sim || exit; \
	done

gpu: ## gpu [PART=steps]: all of the next two on this machine, for its GPU
	@$(MAKE) --no-print-directory gpu-kit CUDA_ARCH=native
	@out=gpu-kit/$$(date +%F_%H%M%S) && bash gpu-kit/run.sh "$$out" $(if $(filter command,$(origin PART)),$(PART)) && \
	    $(MAKE) --no-print-directory gpu-results FROM="$$out"

gpu-kit: ## gpu-kit [DIR= CUDA_ARCH=sm_90]: what measures a GPU elsewhere, in a folder
	@setup/deps.sh compare
	@$(BENCH) setup.gpu.kit

gpu-results: ## gpu-results FROM=OUT: compare and keep what its run.sh brought back
	@setup/deps.sh compare
	@$(BENCH) setup.gpu.results

deps: ## install the missing packages of packages.txt
	@setup/deps.sh

# From here to profile-gpu, except for bench, STUDY=name means the stages of that study.

step: ## step STAGE=01 [STUDY=]: a stage's idea, its diff, its gain here
	@setup/deps.sh compare
	@$(BENCH) step step

diff: ## diff STAGE=02 [FROM=01 STUDY=]: what a stage changed against the one before
	@$(BENCH) step diff

asm: ## asm STAGE=01 [FUNCTION= STUDY=]: the code of a function
	@setup/deps.sh run
	@$(BENCH) asm

new-stage: ## new-stage FROM=01 NAME=20_mine [STUDY=]: your own, from a copy
	@$(BENCH) step new

export: ## export STAGE=02 DIR=/new/folder [STUDY=]: a stage that needs no other file
	@$(BENCH) step export

new-study: ## new-study NAME=heat: a study of your own, the smallest that works
	@$(BENCH) step study

check: ## check STAGE=20 [STUDY= RUNS= TARGET=50%|1.2x PHASE=]: test and time
	@setup/deps.sh compare
	@$(BENCH) check

bench: ## bench [STAGE=02 STUDY= FILTER=]: the machine's ceilings, a stage under them
	@setup/deps.sh bench
	@$(BENCH) bench.ceilings

# HIDDEN=32 sets the ladder's option --hidden, here and above.
compare: ## compare A=01 B=02 [STUDY= RUNS= HIDDEN= ...]: how much faster is B
	@setup/deps.sh compare
	@$(BENCH) compare

peers: ## install what `run_all.sh --peers` compares with: gigabytes
	@$(MAKE) --no-print-directory -C bench/peers install

profile: ## profile [STAGE=01 STUDY=]: where a stage's time and memory go
	@$(BENCH) profile

profile-gpu: ## profile-gpu STAGE=05 [STUDY=]: its kernels; without a GPU, counted
	@$(BENCH) profile --gpu

report: ## write your machine's page, or with REFERENCE= the READMEs' tables
	@setup/deps.sh report
	@$(BENCH) report.write

site: ## every README as a page, stages with source and diff: report/site/_build
	@setup/deps.sh site
	@rm -rf report/site/_build
	@"$(PYTHON)" -m sphinx -q -W --keep-going -j auto -c report/site . report/site/_build
	@rm -r report/site/_build/.doctrees

clean: ## remove what was built
	@rm -rf report/site/_build
	@for directory in $(STAGES) $(ROOMS) bench bench/machine data tests tests/simulator tests/lint; do \
	    $(MAKE) --no-print-directory -C $$directory clean || exit; \
	done

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13

.PHONY: all test lint test-gpu sim gpu gpu-kit gpu-results deps step diff asm new-stage export new-study check bench compare peers profile profile-gpu report site clean help $(STAGES)
endif
