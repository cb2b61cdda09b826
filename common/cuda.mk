# What every CUDA stage's Makefile includes. `make` builds train with nvcc. `make sim` builds
# train.sim from the same source with the host's compiler alone, for a device simulated on the CPU:
# see tests/cuda_on_cpu. From the command line:
#
#     OUTPUT=file      builds elsewhere: file, file.sim or file.sanitized.sim
#     EXTRA=flags      adds flags: nvcc's, or in `make sim` gcc's and g++'s
#     CUDA_ARCH=sm_90  for another architecture than this machine's
#     SANITIZE=1       builds train.sanitized.sim, with AddressSanitizer and
#                      UndefinedBehaviorSanitizer

ROOT  := $(patsubst %/common/,%,$(dir $(lastword $(MAKEFILE_LIST))))
# The folder's name, whatever STAGE= was given to a make that calls this one. (To make, the path of a
# folder is several words where it has spaces.)
override STAGE := $(lastword $(notdir $(CURDIR)))

SOURCE = train.cu
OUTPUT = train
EXTRA  =

CC       = gcc
CXX      = g++
NVCC     = $(shell PATH="$$PATH:/usr/local/cuda/bin" command -v nvcc || echo nvcc)
# As in stage.mk, so that the data are loaded and the phases timed by the same code.
CFLAGS   = -std=gnu11 -O3 -march=native -g -Wall -Wextra
CPPFLAGS = -I$(ROOT) -DSTAGE='"$(STAGE)"'
LDLIBS   = -lz -lm

# The GPU of this machine, or where there is none (to compile is a test, too) the major ones from
# Turing on. all-major means that since CUDA 13; before, sm_75 runs on all of them as well, compiled
# on from its intermediate code when it starts.
CUDA_ARCH = $(shell if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then echo native; \
                    elif $(NVCC) --version | grep -q 'release 1[012]\.'; then echo sm_75; \
                    else echo all-major; fi)
NVCCFLAGS = -std=c++17 -O3 -lineinfo -arch=$(CUDA_ARCH) -Xcompiler -Wall,-Wextra

COMMON_SOURCES := $(wildcard $(ROOT)/common/*.c)
COMMON         := $(COMMON_SOURCES) $(wildcard $(ROOT)/common/*.h) $(ROOT)/common/cuda.mk

# common/ is C, and as one object file it keeps out of the way of other builds.
$(OUTPUT): $(SOURCE) $(OUTPUT).o
	$(NVCC) $(CPPFLAGS) $(NVCCFLAGS) $(EXTRA) -o $@ $^ $(LDLIBS)

$(OUTPUT).o: $(COMMON) $(OUTPUT).flags
	$(CC) $(CPPFLAGS) $(CFLAGS) -r -nostdlib -o $@ $(COMMON_SOURCES)

$(OUTPUT).flags: FORCE
	$(call record,$(CC) $(CFLAGS) $(NVCC) $(CPPFLAGS) $(NVCCFLAGS) $(EXTRA) $(LDLIBS))

SIM        := $(ROOT)/tests/cuda_on_cpu
CXXFLAGS    = -std=c++17 -O3 -march=native -g -fopenmp -Wall -Wextra -Wno-unknown-pragmas
SANITIZE    =
SANITIZED   = -O1 -fsanitize=address,undefined -fno-sanitize-recover=all
SIM_EXTRA   = $(if $(SANITIZE),$(SANITIZED)) $(EXTRA)
SIM_OUTPUT := $(OUTPUT)$(if $(SANITIZE),.sanitized).sim
SIM_PARTS  := $(patsubst $(SIM)/%.cpp,$(SIM_OUTPUT).%.o,$(wildcard $(SIM)/*.cpp))
# So that kernels can be kept away from the host's heap and stack.
WRAP        = -Wl,--wrap=main,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc \
              -Wl,--wrap=free

sim: $(SIM_OUTPUT)

# translate.sed keeps the lines, so that messages and gdb name those of $(SOURCE).
$(SIM_OUTPUT): $(SOURCE) $(SIM)/translate.sed $(SIM)/cuda_runtime.h $(SIM_OUTPUT).o $(SIM_PARTS)
	{ echo '#line 1 "$(SOURCE)"'; sed -E -f $(SIM)/translate.sed $(SOURCE); } | \
	    $(CXX) -I$(SIM) -include cuda_runtime.h $(CPPFLAGS) $(CXXFLAGS) $(SIM_EXTRA) -o $@ \
	    -x c++ - -x none $(WRAP) $(filter %.o,$^) $(LDLIBS) -ldl

$(SIM_OUTPUT).o: $(COMMON) $(SIM_OUTPUT).flags
	$(CC) $(CPPFLAGS) $(CFLAGS) $(SIM_EXTRA) -r -nostdlib -o $@ $(COMMON_SOURCES)

$(SIM_OUTPUT).flags: FORCE
	$(call record,$(CC) $(CFLAGS) $(CXX) $(CPPFLAGS) $(CXXFLAGS) $(SIM_EXTRA) $(LDLIBS))

$(SIM_PARTS): $(SIM_OUTPUT).%.o: $(SIM)/%.cpp $(wildcard $(SIM)/*.h) $(ROOT)/common/cuda.mk
	$(CXX) $(CXXFLAGS) -c -o $@ $<

clean:
	rm -f train train.sim train.sanitized.sim train*.flags

.INTERMEDIATE: $(OUTPUT).o $(SIM_OUTPUT).o $(SIM_PARTS)
.PHONY: sim clean

include $(ROOT)/common/flags.mk
