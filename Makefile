# Builds, tests and compares the stages. A directory stages/NN_name with a Makefile is a stage; none
# is named here. (A directory without one is what git leaves of a stage that another branch has.)

STAGES  := $(patsubst %/Makefile,%,$(wildcard stages/[0-9][0-9]_*/Makefile))
SOURCES := $(sort $(wildcard stages/[0-9][0-9]_*/train.c stages/[0-9][0-9]_*/train.cu))

NVCC ?= nvcc

all: $(STAGES) ## build every stage that this machine can build

$(STAGES):
	@if [ -e $@/train.cu ] && ! command -v $(NVCC) >/dev/null; then \
	    echo "$@: left out, found no $(NVCC) (the CUDA toolkit) in PATH"; \
	else \
	    $(MAKE) --no-print-directory -C $@; \
	fi

test: ## install what the tests need, build, and prove the stages right
	./deps.sh
	$(MAKE) all
	$(MAKE) -C tests

deps: ## install the packages of packages.txt that are missing
	@./deps.sh

# git exits with 1 where the files differ, and by a signal where the reader of a pipe has enough.
diff: ## diff STAGE=02: what a stage changed against the one before it
	@before= after=; \
	for source in $(SOURCES); do \
	    case $$source in \
	    stages/"$(STAGE)"/* | stages/"$(STAGE)"_*) after=$$source; break ;; \
	    esac; \
	    before=$$source; \
	done; \
	if [ -z "$$before" ] || [ -z "$$after" ]; then \
	    echo "make diff: found STAGE='$(STAGE)', expected one of:" \
	        "$(patsubst stages/%/,%,$(dir $(wordlist 2,99,$(SOURCES))))" >&2; \
	    exit 2; \
	fi; \
	git diff --no-index --histogram --function-context "$$before" "$$after"; \
	case $$? in 0 | 1 | 141) ;; *) exit 1 ;; esac

headline: ## headline RESULTS=report/results/...: write those results into README.md
	@python3 report/tables.py --update README.md "$(RESULTS)/runs.csv"

clean: ## remove what was built
	@for directory in $(STAGES) data tests; do \
	    $(MAKE) --no-print-directory -C $$directory clean || exit; \
	done

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 10

.PHONY: all test deps diff headline clean help $(STAGES)
