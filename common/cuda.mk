# Every CUDA stage's Makefile includes this. `make` builds train with nvcc. `make sim` builds
# train.sim from the same source with the host's compiler alone, for a device simulated on the CPU:
# see sim/. From the command line:
#
#     OUTPUT=file      builds elsewhere: file, file.sim, file.sanitized.sim or file.counted.sim
#     EXTRA=flags      adds flags: nvcc's, or in `make sim` gcc's and g++'s
#     CUDA_ARCH=sm_90  for another architecture than this machine's
#     COUNT=1          builds train.counted.sim, which counts what kernels do with memory

DEVICE = gpu
ROOT := $(patsubst %/common/,%,$(dir $(lastword $(MAKEFILE_LIST))))
include $(ROOT)/common/program.mk

# For newer_cuda.h, and for the simulated device, which then has this capability.
ifdef CAPABILITY
CPPFLAGS += -DCAPABILITY=$(CAPABILITY) -DINSTEAD='"$(INSTEAD)"'
endif
NVCCFLAGS = -std=c++17 -O3 -lineinfo -arch=$(CUDA_ARCH) -Xcompiler -Wall,-Wextra

COMPILE := $(CC) $(CFLAGS)
SHARED  := $(call shared,$(COMPILE))
ifeq ($(shell command -v $(NVCC)),)
$(OUTPUT): FORCE
	@rm -f $@
	@echo "$(STAGE): left out, found no $(NVCC) (the CUDA toolkit) in PATH"
else
$(OUTPUT): $(SOURCE) $(SHARED) $(wildcard Makefile) $(OUTPUT).flags
	$(NVCC) $(CPPFLAGS) $(NVCCFLAGS) $(EXTRA) -o $@ $(SOURCE) $(SHARED) $(LDLIBS)
endif

$(SHARED): $(COMMON)
	$(call compile_shared,$(COMPILE))

$(OUTPUT).flags: FORCE
	$(call record,$(CC) $(CFLAGS) $(NVCC) $(CPPFLAGS) $(NVCCFLAGS) $(EXTRA) $(LDLIBS))

SIM        := $(ROOT)/sim
# Its programs run as fast as with -O3, which takes twice as long to compile. In DWARF 5, addr2line
# finds no name of what came through a pipe.
CXXFLAGS    = -std=c++17 -O2 -march=$(MARCH) -gdwarf-4 -fopenmp -Wall -Wextra -Wno-unknown-pragmas
SIM_EXTRA   = $(if $(SANITIZE),$(SANITIZED)) $(EXTRA)
# Where a thread may wait in a loop for a volatile word, each step of the loop calls the device.
SPINNING    = $(if $(shell grep -wl volatile $(SOURCE)),-fsanitize-coverage=trace-pc)
# Only the stage's own source counts. A float4 stays one access, and short loops are unrolled: also
# those of 8 × 8 sums.
COUNT       =
COUNTED     = -O3 -fsanitize=thread -Wno-tsan --param tsan-distinguish-volatile=1 -fno-tree-sra \
              -fno-tree-loop-distribute-patterns --param max-completely-peeled-insns=400
SIM_OUTPUT := $(OUTPUT)$(if $(SANITIZE),.sanitized)$(if $(COUNT),.counted).sim
SIM_SHARED := $(call shared,$(CC) $(CFLAGS) -O1 $(SIM_EXTRA))
SIM_PARTS  := $(patsubst %.cpp,%.o,$(wildcard $(SIM)/*.cpp))
SIM_LINKED := $(if $(COUNT),$(SIM_PARTS),$(filter-out %/accesses.o,$(SIM_PARTS)))
# The simulated device wraps these, to keep kernels away from the host's heap and stack.
WRAP        = -Wl,--wrap=main,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc \
              -Wl,--wrap=free

sim: $(SIM_OUTPUT)

# translate.sed keeps the line numbers, so that messages and gdb name the lines of $(SOURCE).
$(SIM_OUTPUT): $(SOURCE) $(SIM)/translate.sed $(SIM)/cuda_runtime.h $(SIM_SHARED) $(SIM_LINKED) \
    $(wildcard Makefile) $(SIM_OUTPUT).flags
	{ echo '#line 1 "$(SOURCE)"'; sed -E -f $(SIM)/translate.sed $(SOURCE); } | \
	    $(CXX) -I$(SIM) -include cuda_runtime.h $(CPPFLAGS) $(CXXFLAGS) $(SIM_EXTRA) \
	    $(SPINNING) $(if $(COUNT),$(COUNTED)) -c -o $@.o -x c++ -
	$(CXX) $(CXXFLAGS) $(SIM_EXTRA) -o $@ $(WRAP) $@.o $(filter %.o,$^) $(LDLIBS) -ldl
	@rm $@.o

$(SIM_SHARED): $(COMMON)
	$(call compile_shared,$(CC) $(CFLAGS) -O1 $(SIM_EXTRA))

$(SIM_OUTPUT).flags: FORCE
	$(call record,$(CC) $(CFLAGS) $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(SIM_EXTRA) $(COUNT) $(LDLIBS))

# The simulated device is the same for all stages. Two of them may build it at the same time, so a
# part gets its name when it is whole.
$(SIM_PARTS): %.o: %.cpp $(wildcard $(SIM)/*.h) $(ROOT)/common/cuda.mk $(SIM)/simulator.flags
	$(CXX) $(CXXFLAGS) -c -o $@.$$$$ $< && mv $@.$$$$ $@

$(SIM)/simulator.flags: FORCE
	$(call record,$(CXX) $(CXXFLAGS))

clean:
	rm -f $(OUTPUT) $(OUTPUT).sim $(OUTPUT).*.sim $(OUTPUT)*.flags $(SHARED) $(SIM_SHARED) $(SIM_PARTS) \
	    $(SIM)/simulator.flags

.PHONY: sim clean
