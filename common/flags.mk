# What all programs are built with, and how a change of flags builds them again. A Makefile includes
# this before its rules.

# MARCH=x86-64-v3, in the environment or on make's command line, builds for a processor without
# AVX-512. GCC's -march has the names. The results of such programs go to a folder of their own
# (bench/machine.sh).
MARCH ?= native

CC    := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX    = g++
# Each loop begins at a line of the code's cache. Where another program has the core's other hardware
# thread, an inner loop that lies across one line more is clearly slower.
CFLAGS = -std=gnu11 -O3 -march=$(MARCH) -falign-loops=64 -g -Wall -Wextra

# The toolkit's folder is often not in PATH.
NVCC ?= $(shell PATH="$$PATH:/usr/local/cuda/bin" command -v nvcc || echo nvcc)
# This machine's GPUs. Without a driver, nvidia-smi may print its error on standard output.
GPU  = $(shell nvidia-smi -L 2>/dev/null | grep '^GPU')
# The GPU of this machine. If it has none, Turing's: its intermediate code is compiled on for any later
# GPU when the program starts. CUDA_ARCH=all-major takes five times as long, and compiles for each. A
# stage that needs a later one declares CAPABILITY = 90: nvcc refuses it for an older one.
CUDA_ARCH = $(if $(CAPABILITY),sm_$(CAPABILITY),$(if $(GPU),native,sm_75))

# PROGRAM.flags has the compiler and the flags that a program was built with, and which processor
# `native` was, because several may share a home. When they change, the file changes. The program
# depends on it, so make builds it again. Its recipe is $(call record,COMPILER FLAGS).
native = $(if $(findstring -march=native,$1), (native: $(firstword $(shell \
             $(CC) -march=native -dM -E -x c /dev/null 2>/dev/null | cksum))))
quote  = '$(subst ','\'',$1)$(native)'
record = @flags=$(call quote,$1); \
         [ "$$flags" = "$$(cat $@ 2>/dev/null)" ] || printf '%s\n' "$$flags" >$@

FORCE:
.PHONY: FORCE
# The first rule is make's default, but not this one.
.DEFAULT_GOAL :=
