# What every CPU stage's Makefile includes: one set of flags for all, so that a speedup comes from
# the code. From the command line: OUTPUT=file builds elsewhere, EXTRA=flags adds flags (the tests
# use both, for sanitizers and for other instruction sets).

ROOT  := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))..)
# Whatever STAGE= was given to a make that calls this one.
override STAGE := $(notdir $(CURDIR))

CC       = gcc
CFLAGS   = -std=gnu11 -O3 -march=native -g -Wall -Wextra
CPPFLAGS = -I$(ROOT) -DSTAGE='"$(STAGE)"'
LDLIBS   = -lz -lm
OUTPUT   = train
EXTRA    =

COMMON_SOURCES := $(wildcard $(ROOT)/common/*.c)
COMMON_HEADERS := $(wildcard $(ROOT)/common/*.h)

$(OUTPUT): train.c Makefile $(COMMON_SOURCES) $(COMMON_HEADERS) $(ROOT)/common/stage.mk
	$(CC) $(CPPFLAGS) $(CFLAGS) $(EXTRA) -o $@ train.c $(COMMON_SOURCES) $(LDLIBS)

clean:
	rm -f train

.PHONY: clean
