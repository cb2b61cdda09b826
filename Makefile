# Builds, tests and compares the stages. A directory stages/NN_name with a Makefile is a stage; none
# is named here. (A directory without one is what git leaves of a stage that another branch has.)

ifneq ($(shell uname -s),Linux)
$(error needs Linux, found $(shell uname -s): see INSTALL.md)
endif

# nvcc hands the path of the folder to a shell, between quotation marks.
UNREADABLE := " ` $$( $${
ifneq ($(strip $(foreach sign,$(UNREADABLE),$(findstring $(sign),$(CURDIR)))),)
$(error needs a path without any of $(UNREADABLE) which nvcc cannot read: found $(CURDIR))
endif

STAGES := $(patsubst %/Makefile,%,$(wildcard stages/[0-9][0-9]_*/Makefile))

NVCC ?= nvcc

# Two goals may build the same: with -j, too, one begins when the other is done.
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

test: ## install what the tests need, build, and test all of it
	./deps.sh test
	-@./deps.sh # for bench, profiles and report, whose tests are skipped where it cannot be had
	$(MAKE) all
	$(MAKE) -C tests

lint: ## read everything for faults that no test sees: format, bugs that tools know, prose
	@./deps.sh lint
	@$(MAKE) --no-print-directory --keep-going -C tests/lint

test-gpu: all ## the CUDA stages on this machine's GPU, and under compute-sanitizer
	$(MAKE) -C tests test-gpu

sim: ## build the CUDA stages for a device simulated on the CPU: stages/*/train.sim
	@for source in $(sort $(wildcard stages/[0-9][0-9]_*/train.cu)); do \
	    $(MAKE) --no-print-directory -C "$${source%/train.cu}" sim || exit; \
	done

deps: ## install the packages of packages.txt that are missing
	@./deps.sh

step: ## step STAGE=01: a stage's idea, its diff, and what it gains on this machine
	@./deps.sh run
	@stages/step.sh '$(STAGE)'

diff: ## diff STAGE=02: what a stage changed against the one before it
	@stages/diff.sh '$(STAGE)'

new-stage: ## new-stage FROM=01_vectorized NAME=06_mine: a stage of your own, from a copy
	@stages/new.sh '$(FROM)' '$(NAME)'

check: ## check STAGE=06_mine: does it compute what it should, and how fast against its origin
	@./deps.sh test
	@tests/check.sh '$(STAGE)'

bench: ## time the stages' phases and the machine's ceilings; FILTER=regex for some of it
	@./deps.sh bench
	@$(MAKE) --no-print-directory -s -C bench
	@FILTER='$(FILTER)' bench/run.sh

compare: ## compare A=01 B=02 [HIDDEN= BATCH= EPOCHS= TRAIN= RUNS=]: is B faster, and by how much
	@./deps.sh run
	@bench/compare.py $(if $(HIDDEN),--hidden '$(HIDDEN)') $(if $(BATCH),--batch '$(BATCH)') \
	    $(if $(EPOCHS),--epochs '$(EPOCHS)') $(if $(TRAIN),--train '$(TRAIN)') \
	    $(if $(RUNS),--runs '$(RUNS)') -- '$(A)' '$(B)'

peers: ## install what `run_all.sh --peers` compares with, into bench/peers/env (gigabytes)
	@$(MAKE) --no-print-directory -C bench/peers install

profile: ## profile STAGE=01: where a CPU stage's time goes, and its memory (all without STAGE)
	@profiles/profile.sh $(STAGE)

profile-gpu: ## profile-gpu STAGE=05: how a CUDA stage's kernels use the GPU
	@profiles/profile_gpu.sh $(STAGE)

# Debian's matplotlib is for Debian's python3, which another may stand before.
report: ## write report/, the plots and the READMEs' tables from report/results
	@./deps.sh report
	@PATH="/usr/bin:$$PATH" python3 report/report.py

headline: ## headline RESULTS=report/results/...: write those results into README.md
	@python3 report/tables.py --update README.md "$(RESULTS)/runs.csv"

clean: ## remove what was built
	@for directory in $(STAGES) bench bench/peers data tests tests/cuda_on_cpu tests/lint; do \
	    $(MAKE) --no-print-directory -C $$directory clean || exit; \
	done

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13

.PHONY: all test lint test-gpu sim deps step diff new-stage check bench compare peers profile profile-gpu report headline clean help $(STAGES)
