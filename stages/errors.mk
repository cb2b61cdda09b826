# Builds and runs the PROGRAMS of a chapter's folder errors/, which print what its products round.
include ../../../common/flags.mk

ROOT   = ../../..
SHARED = $(wildcard $(ROOT)/common/*.c) $(ROOT)/stages/training.c

$(PROGRAMS): %: build/%
	@build/$@ --hidden 256 --batch 128 --data "$$($(ROOT)/data/locate.sh)"

build/%: %.c $(SHARED) Makefile $(ROOT)/stages/errors.mk
	@mkdir -p $(@D)
	$(CC) -I$(ROOT) -D_GNU_SOURCE -DSTAGE='"$*"' $(CFLAGS) -o $@ $< $(SHARED) $(LIBS) -lz -lm

.PHONY: $(PROGRAMS)
