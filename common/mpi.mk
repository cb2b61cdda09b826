# The Makefile of a stage of several processes includes this in the place of stage.mk.
NEEDS  = mpicc
OPENMP = yes
LEAKS  = $(ROOT)/bench/leaks_of_mpi.c
include $(dir $(lastword $(MAKEFILE_LIST)))stage.mk

# mpicc calls the compiler of the other stages. Open MPI and MPICH read the variables.
override CC := OMPI_CC=$(CC) MPICH_CC=$(CC) mpicc
