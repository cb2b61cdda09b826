# Builds, tests and compares the stages. None is named here: bench/ladders.py finds them.

# What the command line sets, bench/options.py reads: no shell does, STAGE='a "b"' stays one word.

ifneq ($(shell uname -s),Linux)
$(error needs Linux, found $(shell uname -s): see setup/README.md)
endif

# make and all that it starts use one Python: see python.sh. Make ends what it has started, so that is
# Python, and no shell that leaves it behind.
override PYTHON := $(shell setup/python.sh)
export PYTHON
BENCH := exec "$(PYTHON)" -m bench

# The folders of the stages of all ladders. Empty on a new machine, where there is no python3 yet.
STAGES := $(shell $(BENCH) ladders stages 2>/dev/null)
ROOMS   = $(dir $(wildcard $(foreach ladder,$(shell $(BENCH) ladders ladders),\
              $(ladder)/peers/Makefile $(ladder)/data/Makefile)))

include common/flags.mk
MAKEFLAGS += --no-print-directory

# Two goals may build the same files. So each has a make of its own, one after the other, even with
# -j. The stages of one goal are built side by side.
ifneq ($(word 2,$(MAKECMDGOALS)),)
.NOTPARALLEL:
.PHONY: $(MAKECMDGOALS)
$(sort $(MAKECMDGOALS)):
	@$(MAKE) '$(subst ','\'',$@)'
else

##@ Build and test

all: $(STAGES) ## build every stage that this machine can build
	@if [ $(words $^) = 0 ]; then \
	    setup/deps.sh run && stages=$$($(BENCH) ladders stages) && [ "$$stages" ] && \
	        $(MAKE) all STAGES="$$stages"; \
	elif ! command -v $(NVCC) >/dev/null; then \
	    echo 'Without nvcc: `make check STAGE=NAME` tests a CUDA stage on a simulated device.'; \
	fi

$(STAGES):
	@$(MAKE) -C $@

test: install-test ## install what tests need, build, test (FULL=1: in all ways)
	-@setup/deps.sh # for bench, profiles and report: without the packages their tests are skipped
	@$(MAKE) -C tests test

lint: install-lint ## faults that no test finds: layout, kinds of bugs, prose
	@$(MAKE) --keep-going -C tests/lint

##@ A GPU

gpu: install-compare ## [LIMIT=480 RUNS= HIDDEN= ...]: what is right on it, and how fast
	@$(BENCH) bench.gpu

##@ Learn a stage, and write your own

# From here to look, STUDY=name means the stages of that study, and HIDDEN=32 sets their
# option --hidden.

step: install-compare ## STAGE=01 [STUDY=]: a stage's idea, its diff, its gain here
diff: ## STAGE=02 [FROM=01 STUDY=]: what it changed against the one before
export: ## STAGE=02 DIR=/new/folder [STUDY=]: it alone, with what it needs
new-stage: ## FROM=01 NAME=20_mine [STUDY=]: your own, from a copy
new-study: ## NAME=heat: a study of your own, the smallest that works
step diff export new-stage new-study:
	@$(BENCH) step $@

##@ Measure

asm: install-profile ## STAGE=01 [FUNCTION= STUDY=]: the hottest loop, a function
check: install-compare ## STAGE=20 [TARGET=50%|1.2x PHASE= RUNS= HIDDEN= ...]: is it right
compare: install-compare ## A=01 B=02 [STUDY= RUNS= HIDDEN= ...]: how much faster is B
profile: install-run ## [STAGE=01 STUDY=]: where time and memory go, what kernels do
cluster: install-cluster ## [STAGE=11 NODES=64 LATENCY=10us BANDWIDTH=]: nodes, simulated
asm check compare profile cluster:
	@$(BENCH) $@

look: install-look ## STAGE=05 [KERNEL= WARP= STUDY= HIDDEN= ...]: its memory accesses by lane
	@$(BENCH) report.lanes

bench: install-bench ## [STAGE=02 STUDY= FILTER=]: ceilings, or a stage under them
	@$(BENCH) bench.ceilings

peers: ## install what `run_all.sh --peers` compares with: gigabytes
	@$(MAKE) -C bench/peers install

##@ Show, and the machine

report: install-report ## write your machine's page, or the READMEs' tables and plots
	@$(BENCH) report.pages

site: install-site ## each README, and what `make look` draws: report/site/_build/index.html
	@rm -rf report/site/_build
	@echo 'Draws and writes all pages, in a minute or two'
	@"$(PYTHON)" -m sphinx -q -W --keep-going -j auto -c report/site . report/site/_build
	@rm -r report/site/_build/.doctrees
	@echo 'Open report/site/_build/index.html'

deps: ## install all missing packages
	@setup/deps.sh

clean: ## remove what was built
	@rm -rf report/site/_build report/look
	@for folder in $(STAGES) $(ROOMS) bench bench/machine data tests tests/simulator tests/lint; do \
	    $(MAKE) -C $$folder clean || exit; \
	done

help: ## list the targets
	@sed -n 's/^##@ /\n/p; s/^\([a-z-]*\):[^#]*## /  \1\t/p' $(firstword $(MAKEFILE_LIST)) | \
	    expand -t 15

# What packages.txt says of a group.
install-%:
	@setup/deps.sh $*

# Every target of its own line above.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST))) $(STAGES)
endif
