# Builds, tests and compares the stages. A directory stages/NN_name with a Makefile is a stage, so
# none is named here. (A directory without a Makefile is left over from another git branch.)

ifneq ($(shell uname -s),Linux)
$(error needs Linux, found $(shell uname -s): see INSTALL.md)
endif

# nvcc passes the folder's path to a shell in double quotes, where these signs have a meaning.
UNREADABLE := " ` $$( $${
ifneq ($(strip $(foreach sign,$(UNREADABLE),$(findstring $(sign),$(CURDIR)))),)
$(error found the folder $(CURDIR): nvcc cannot read a path with any of $(UNREADABLE))
endif

STAGES := $(patsubst %/Makefile,%,$(wildcard stages/[0-9][0-9]_*/Makefile))

NVCC ?= nvcc

# Two goals may build the same files, so they run one after the other, even with -j.
ifneq ($(word 2,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

all: $(STAGES) ## build every stage that this machine can build

$(STAGES):
	@if [ -e $@/train.cu ] && ! command -v $(NVCC) >/dev/null; then \
	    echo "$@: left out, found no $(NVCC) (the CUDA toolkit) in PATH"; \
	else \
	    $(MAKE) --no-print-directory -C $@; \
	fi

test: ## install what the tests need, build, and run all tests
	./deps.sh test
	-@./deps.sh # for bench, profiles and report: without the packages their tests are skipped
	$(MAKE) all
	$(MAKE) -C tests

lint: ## look for faults that no test finds: layout, known kinds of bugs, prose
	@./deps.sh lint
	@$(MAKE) --no-print-directory --keep-going -C tests/lint

test-gpu: all ## test the CUDA stages on this machine's GPU, also under compute-sanitizer
	$(MAKE) -C tests test-gpu

sim: ## build the CUDA stages for a device simulated on the CPU: stages/*/train.sim
	@for source in $(sort $(wildcard stages/[0-9][0-9]_*/train.cu)); do \
	    $(MAKE) --no-print-directory -C "$${source%/train.cu}" sim || exit; \
	done

deps: ## install the missing packages of packages.txt
	@./deps.sh

step: ## step STAGE=01: show a stage's idea, its diff, and its gain on this machine
	@./deps.sh run
	@stages/step.sh '$(STAGE)'

diff: ## diff STAGE=02: show what a stage changed against the stage before it
	@stages/diff.sh '$(STAGE)'

new-stage: ## new-stage FROM=01_vectorized NAME=06_mine: start your own stage from a copy
	@stages/new.sh '$(FROM)' '$(NAME)'

check: ## check STAGE=06_mine: test a stage, and compare its time with that of its origin
	@./deps.sh test
	@tests/check.py '$(STAGE)' '$(STUDY)'

bench: ## time the stages' phases and the machine's ceilings (FILTER=regex: only some)
	@./deps.sh bench
	@$(MAKE) --no-print-directory -s -C bench
	@FILTER='$(FILTER)' bench/run.sh

compare: ## compare A=01 B=02 [HIDDEN= BATCH= EPOCHS= TRAIN= RUNS=]: measure how much faster B is
	@./deps.sh run
	@bench/compare.py $(if $(HIDDEN),--hidden '$(HIDDEN)') $(if $(BATCH),--batch '$(BATCH)') \
	    $(if $(EPOCHS),--epochs '$(EPOCHS)') $(if $(TRAIN),--train '$(TRAIN)') \
	    $(if $(RUNS),--runs '$(RUNS)') -- '$(A)' '$(B)'

peers: ## install what `run_all.sh --peers` compares with (gigabytes, in bench/peers/env)
	@$(MAKE) --no-print-directory -C bench/peers install

profile: ## profile STAGE=01: find where a CPU stage's time and memory go (without STAGE: all)
	@profiles/profile.sh $(STAGE)

profile-gpu: ## profile-gpu STAGE=05: measure how a CUDA stage's kernels use the GPU
	@profiles/profile_gpu.sh $(STAGE)

# Debian's matplotlib needs Debian's python3, and another python3 may come first in PATH.
report: ## write the report, its plots and the READMEs' tables from report/results
	@./deps.sh report
	@PATH="/usr/bin:$$PATH" python3 report/report.py

headline: ## headline RESULTS=report/results/MACHINE/stages: write these results into README.md
	@python3 harness/tables.py --update README.md "$(RESULTS)/runs.csv"

clean: ## remove what was built
	@for directory in $(STAGES) bench bench/peers data tests tests/simulator tests/lint; do \
	    $(MAKE) --no-print-directory -C $$directory clean || exit; \
	done

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13

.PHONY: all test lint test-gpu sim deps step diff new-stage check bench compare peers profile profile-gpu report headline clean help $(STAGES)
