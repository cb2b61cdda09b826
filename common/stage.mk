# Every CPU stage's Makefile includes this. All of them have the same flags, so that a speedup comes
# from the code. From the command line: OUTPUT=file builds elsewhere, EXTRA=flags adds flags (the
# tests use both, for sanitizers and for other instruction sets).
#
# Paths are relative, here and in the other Makefiles. The repository's own path may have a space in
# it, or another sign that make or the shell reads.

ROOT  := $(patsubst %/common/,%,$(dir $(lastword $(MAKEFILE_LIST))))
# The folder's name. This overrides the STAGE= of a make that calls this one. To make, the path of a
# folder is several words where it has spaces.
override STAGE := $(lastword $(notdir $(CURDIR)))

CC       = gcc
CFLAGS   = -std=gnu11 -O3 -march=$(MARCH) -g -Wall -Wextra
CPPFLAGS = -I$(ROOT) -DSTAGE='"$(STAGE)"'
LDLIBS   = -lz -lm
OUTPUT   = $(basename $(SOURCE))
EXTRA    =

# The folder's source file: train.c is built into train.
SOURCE := $(wildcard *.c)
ifneq ($(words $(SOURCE)),1)
$(error $(STAGE): found '$(SOURCE)', expected one source file)
endif

# What all stages share, and what those of this ladder share. The ladder's reference shares nothing.
COMMON_SOURCES := $(wildcard $(ROOT)/common/*.c) $(filter-out ../reference.c,$(wildcard ../*.c))
COMMON_HEADERS := $(wildcard $(ROOT)/common/*.h ../*.h)

# What the stage needs and not every machine has: NEEDS in its Makefile names commands.
MISSING := $(foreach command,$(NEEDS),$(if $(shell command -v $(command) 2>/dev/null),,$(command)))
ifneq ($(strip $(MISSING)),)
$(OUTPUT): FORCE
	@echo "$(STAGE): left out, found no $(strip $(MISSING)) in PATH"
else
$(OUTPUT): $(SOURCE) Makefile $(COMMON_SOURCES) $(COMMON_HEADERS) $(ROOT)/common/stage.mk \
           $(OUTPUT).flags
	$(CC) $(CPPFLAGS) $(CFLAGS) $(EXTRA) -o $@ $(SOURCE) $(COMMON_SOURCES) $(LDLIBS)
endif

$(OUTPUT).flags: FORCE
	$(call record,$(CC) $(CPPFLAGS) $(CFLAGS) $(EXTRA) $(LDLIBS))

clean:
	rm -f $(OUTPUT) $(OUTPUT).flags

.PHONY: clean

include $(ROOT)/common/flags.mk
