# PROGRAM.flags has the compiler and the flags that a program was built with. When they change, the
# file changes. The program depends on the file, so make builds it again. The file's rule:
#
#     PROGRAM.flags: FORCE
#         $(call record,COMPILER FLAGS)

# MARCH=x86-64-v3, in the environment or on make's command line, builds for a processor without
# AVX-512. GCC's -march has the names. The results of such programs go to a folder of their own
# (report/machine.sh).
MARCH ?= native

quote  = '$(subst ','\'',$1)'
record = @flags=$(call quote,$1); \
         [ "$$flags" = "$$(cat $@ 2>/dev/null)" ] || printf '%s\n' "$$flags" >$@

FORCE:
.PHONY: FORCE
