# What a program was built with lies beside it, in PROGRAM.flags. The file changes when the compiler or
# a flag does, and then the program, which depends on it, is built anew. Its rule:
#
#     PROGRAM.flags: FORCE
#         $(call record,COMPILER FLAGS)

quote  = '$(subst ','\'',$1)'
record = @flags=$(call quote,$1); \
         [ "$$flags" = "$$(cat $@ 2>/dev/null)" ] || printf '%s\n' "$$flags" >$@

FORCE:
.PHONY: FORCE
