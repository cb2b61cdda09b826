# Builds, tests and compares the stages. None is named here: harness/ladders.py finds them.

# A value on the command line is text: make expands nothing in it, here or in a make that starts
# here. Recipes read it from the environment, so that no shell reads it either. Compilers and their
# flags are words of a shell line, as in every Makefile. So are the names of folders: ladders.py
# refuses those that a shell would read.
ifeq ($(MAKELEVEL),0)
$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))), \
    $(eval override export $(name) := $$(value $(name)))))
MAKEOVERRIDES := $(subst $$,$$$$,$(MAKEOVERRIDES))
endif

ifneq ($(shell uname -s),Linux)
$(error needs Linux, found $(shell uname -s): see INSTALL.md)
endif

# nvcc passes the folder's path to a shell in double quotes, where these signs have a meaning.
UNREADABLE := " ` $$( $${
ifneq ($(strip $(foreach sign,$(UNREADABLE),$(findstring $(sign),$(CURDIR)))),)
$(error found the folder $(CURDIR): nvcc cannot read a path with any of $(UNREADABLE))
endif

# Debian's python3, which has the packages, and not another that comes first in PATH.
HARNESS := /usr/bin/python3 -m harness

# The folders of the stages of all ladders. Empty on a new machine, where there is no python3 yet.
STAGES := $(shell $(HARNESS) ladders stages 2>/dev/null)
CUDA    = $(shell $(HARNESS) ladders stages --cuda)
ROOMS   = $(dir $(wildcard $(foreach ladder,$(sort $(dir $(STAGES))),$(ladder)peers/Makefile \
              $(ladder)data/Makefile)))

# As in common/flags.mk.
NVCC ?= $(shell PATH="$$PATH:/usr/local/cuda/bin" command -v nvcc || echo nvcc)

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
	    ./deps.sh run && stages=$$($(HARNESS) ladders stages) && [ "$$stages" ] && \
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
	./deps.sh test
	-@./deps.sh # for bench, profiles and report: without the packages their tests are skipped
	$(MAKE) -C tests

lint: ## look for faults that no test finds: layout, kinds of bugs, prose
	@./deps.sh lint
	@$(MAKE) --no-print-directory --keep-going -C tests/lint

test-gpu: all ## test the CUDA stages on a GPU, also under compute-sanitizer
	$(MAKE) -C tests test-gpu

test-systems: ## test in a fresh Debian 12 and 13: root, half an hour
	@tests/systems.sh

sim: ## build the CUDA stages for a simulated device: stages/*/train.sim
	@for stage in $(CUDA); do \
	    $(MAKE) --no-print-directory -C $$stage sim || exit; \
	done

gpu: ## gpu [PART=2]: build, test, measure, profile on a GPU: 25 minutes
	@harness/gpu.sh $$PART

deps: ## install the missing packages of packages.txt
	@./deps.sh

# From here to profile-gpu, except for bench, STUDY=name means the stages of that study.

step: ## step STAGE=01 [STUDY=]: a stage's idea, its diff, its gain here
	@./deps.sh compare
	@$(HARNESS) step step "$$STUDY" "$$STAGE"

diff: ## diff STAGE=02 [STUDY=]: what a stage changed against the one before
	@$(HARNESS) step diff "$$STUDY" "$$STAGE"

asm: ## asm STAGE=01 [FUNCTION= ALL=1 STUDY=]: the code of its hot loop
	@./deps.sh run
	@$(HARNESS) asm "$$STUDY" "$$STAGE" "$$FUNCTION"

new-stage: ## new-stage FROM=01 NAME=20_mine [STUDY=]: your own, from a copy
	@$(HARNESS) step new "$$STUDY" "$$FROM" "$$NAME"

new-study: ## new-study NAME=heat: a study of your own, the smallest that works
	@$(HARNESS) step study '' "$$NAME"

check: ## check STAGE=20 [STUDY= RUNS= TARGET=50%|1.2x PHASE=]: test and time
	@./deps.sh test
	@$(HARNESS) check "$$STAGE" "$$STUDY" "$$TARGET" "$$PHASE"

bench: ## [FILTER=regex]: the ceilings: arithmetic, caches, memory, barriers
	@./deps.sh bench
	@bench/run.sh

# Make passes variables of its command line on. So HIDDEN=32 sets the ladder's option --hidden.
compare: ## compare A=01 B=02 [STUDY= RUNS= HIDDEN= ...]: how much faster is B
	@./deps.sh compare
	@$(HARNESS) compare --study "$$STUDY" -- "$$A" "$$B"

peers: ## install what `run_all.sh --peers` compares with: gigabytes
	@$(MAKE) --no-print-directory -C bench/peers install

profile: ## profile [STAGE=01 STUDY=]: where a stage's time and memory go
	@$(HARNESS) profile $$STAGE

profile-gpu: ## profile-gpu STAGE=05 [STUDY=]: its kernels; without a GPU, counted
	@$(HARNESS) profile --gpu $$STAGE

report: ## write the report, its plots and the READMEs' tables
	@./deps.sh report
	@$(HARNESS) report.write

site: ## the READMEs as a site with each stage's source and diff: site/_build
	@./deps.sh site
	@rm -rf site/_build
	@/usr/bin/python3 -m sphinx -q -W --keep-going -j auto -c site . site/_build
	@rm -r site/_build/.doctrees
	@echo 'Written: site/_build/index.html'

class: ## class DIR=folder: the results of students on one page, class.html
	@./deps.sh run
	@$(HARNESS) report.class "$$DIR"

slides: ## a deck for each session of COURSE.md, HTML and PDF, in slides/
	@./deps.sh slides
	@$(HARNESS) report.slides

grade: ## grade FROM=folder ASSIGNMENT=name: grade what students hand in
	@./deps.sh grade
	@$(HARNESS) grade "$$FROM" "$$ASSIGNMENT" "$$KEY" "$$OUT"

headline: ## headline RESULTS=report/results/NAME/stages: for stages/README.md
	@./deps.sh run
	@$(HARNESS) report.tables --update stages/README.md "$$RESULTS/runs.csv"

clean: ## remove what was built
	@for directory in $(STAGES) $(ROOMS) bench harness data tests tests/simulator tests/lint; do \
	    $(MAKE) --no-print-directory -C $$directory clean || exit; \
	done

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 13

.PHONY: all test lint test-gpu test-systems sim gpu deps step diff asm new-stage new-study check bench compare peers profile profile-gpu report site class slides grade headline clean help $(STAGES)
endif
