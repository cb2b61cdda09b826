# Every CPU stage's Makefile includes this: see program.mk.

ROOT := $(patsubst %/common/,%,$(dir $(lastword $(MAKEFILE_LIST))))
include $(ROOT)/common/program.mk

# OPENMP = yes in a stage's Makefile.
override CFLAGS += $(if $(OPENMP),-fopenmp)

ifneq ($(SANITIZE),)
override OUTPUT := $(OUTPUT).sanitized
override EXTRA  += $(SANITIZED) $(LEAKS)
endif

# What compiles the files that are shared.
COMPILE := $(CC) $(CFLAGS) $(filter-out %.c,$(EXTRA))
# What the stage needs and not every machine has: NEEDS names commands.
MISSING := $(strip $(foreach each,$(NEEDS),$(if $(shell command -v $(each) 2>/dev/null),,$(each))))
ifneq ($(MISSING),)
$(OUTPUT): FORCE
	@rm -f $@
	@echo "$(STAGE): left out, found no $(MISSING) in PATH"
else
SHARED := $(call shared,$(COMPILE))
$(OUTPUT): $(SOURCE) $(SHARED) $(filter %.c,$(EXTRA)) Makefile $(OUTPUT).flags
	$(CC) $(CPPFLAGS) $(CFLAGS) $(EXTRA) -o $@ $(SOURCE) $(SHARED) $(LDLIBS)

$(SHARED): $(COMMON)
	$(call compile_shared,$(COMPILE))
endif

$(OUTPUT).flags: FORCE
	$(call record,$(CC) $(CPPFLAGS) $(CFLAGS) $(EXTRA) $(LDLIBS))

clean:
	rm -f $(OUTPUT) $(OUTPUT).flags $(OUTPUT).sanitized* $(SHARED)

.PHONY: clean
