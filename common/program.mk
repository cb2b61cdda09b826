# What stage.mk and cuda.mk share: all stages have the same flags, so that a speedup comes from the
# code. From the command line: OUTPUT=file builds elsewhere, EXTRA=flags adds flags. SANITIZE=1 builds
# train.sanitized, or from CUDA train.sanitized.sim, with AddressSanitizer and
# UndefinedBehaviorSanitizer.
#
# Paths are relative, here and in the other Makefiles. The repository's own path may have a space in
# it, or another sign that make or the shell reads.

include $(ROOT)/common/flags.mk

# The folder's name. This overrides the STAGE= of a make that calls this one. To make, the path of a
# folder is several words where it has spaces.
override STAGE := $(lastword $(notdir $(CURDIR)))

# The folder's source file: train.c is built into train.
SOURCE := $(wildcard *.c *.cu)
ifneq ($(words $(SOURCE)),1)
$(error $(STAGE): found '$(SOURCE)', expected one source file)
endif
OUTPUT   = $(basename $(SOURCE))
EXTRA    =
SANITIZE =
SANITIZED = -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
CPPFLAGS = -I$(ROOT) -D_GNU_SOURCE -DSTAGE='"$(STAGE)"'
LDLIBS   = -lz -lm

# What all stages share, and what those of this ladder share. The ladder's reference shares nothing.
# The programs that test the simulated device belong to no ladder.
LADDER         := $(dir $(wildcard ../ladder.toml ../../ladder.toml))
COMMON_SOURCES := $(wildcard $(ROOT)/common/*.c) \
                  $(if $(LADDER),$(filter-out %/reference.c,$(wildcard $(LADDER)*.c)))
COMMON         := $(COMMON_SOURCES) $(wildcard $(ROOT)/common/*.h $(LADDER:%=%*.h) $(dir $(SOURCE))*.h) \
                  $(filter $(ROOT)/%,$(MAKEFILE_LIST))
# It is compiled once for all stages with the same flags. $(call shared,COMPILER FLAGS) is the object
# file, and $(call compile_shared,COMPILER FLAGS) its recipe. Two stages may do so at the same time,
# so the file gets its name when it is whole.
shared = $(or $(LADDER),./)build/$(firstword $(shell printf %s $(call quote,$1) | cksum)).o
define compile_shared
@mkdir -p $(@D)
$1 -I$(ROOT) -D_GNU_SOURCE -r -nostdlib -o $@.$$$$ $(COMMON_SOURCES) && mv $@.$$$$ $@
endef

# make export DIR=folder: the stage with what it shares, in a folder that needs no repository.
ifeq ($(MAKECMDGOALS),export)
FILES  := $(shell realpath --relative-to=$(ROOT) $(SOURCE) $(COMMON_SOURCES))
NEEDED := $(sort $(filter-out $(firstword $(FILES)),$(filter common/% stages/% studies/%,\
            $(shell cd $(ROOT) && $(CXX) -MM -MG -x c++ -I. $(FILES)))))
LINK    = $(if $(filter %.cu,$(SOURCE)),nvcc $(NVCCFLAGS),$(CC) $(CFLAGS))
define ALONE
# $(STAGE) alone: `make && ./$(OUTPUT) --data FOLDER`. README.md has the rest.
$(OUTPUT): $(SOURCE) shared.o
	$(LINK) $(CPPFLAGS:-I%=-I.) -o $$@ $$^ $(LDLIBS)

shared.o: $(NEEDED)
	$(COMPILE) -I. -D_GNU_SOURCE -r -nostdlib -o $$@ $$(filter %.c,$$^)
endef
export ALONE
export:
	@mkdir -- "$$DIR"
	@cp $(SOURCE) $(firstword $(RUN)) "$$DIR" && cd $(ROOT) && cp --parents $(NEEDED) "$$DIR"
	@printf '%s\n' "$$ALONE" >"$$DIR/Makefile"
	@sed -E -e 's,!?\[([^][]*)\]\([^)]*\),\1,g' -e 's,make -C [^ ]*/$(STAGE),make,' \
	    -e 's,[^ ]*/$(STAGE)/,./,; s,[^ ]*/mpirun,./mpirun,' README.md >"$$DIR/README.md"
endif
