# make reads this after a stage's own Makefile, in the stage's directory. It compiles the stage for
# its benchmark, with the stage's own compiler and flags. BENCH_OBJECT is the output.

BENCH := $(ROOT)/bench

$(BENCH_OBJECT): $(SOURCE) Makefile $(BENCH)/stage.c $(BENCH)/stage.h $(BENCH)/object.mk \
                 $(COMMON_SOURCES) $(COMMON_HEADERS) $(ROOT)/common/stage.mk $(BENCH_OBJECT).flags
	$(CC) $(CPPFLAGS) -I. $(CFLAGS) $(EXTRA) -r -o $@ \
	    $(BENCH)/stage.c $(COMMON_SOURCES)

$(BENCH_OBJECT).flags: FORCE
	$(call record,$(CC) $(CPPFLAGS) $(CFLAGS) $(EXTRA))
