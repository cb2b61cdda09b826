# Prints what the Makefiles of stages and peers declare, for ladders.py: FOLDER, NAME and VALUE in a
# line, between bars. FOLDERS names the folders, from the root. CONTRIBUTING.md lists the variables.

VARIABLES := ORIGIN RUN OPENMP DEVICE SKIPS MOVE
# Those of a folder, or of each peer in it: peer_jax_cuda_DEVICE.
declared = $(foreach name,$(filter $(VARIABLES) $(foreach each,$(VARIABLES),peer_%_$(each)), \
    $(.VARIABLES)),$(if $(filter file override,$(origin $(name))),$(name)))

# In this make, what stage.mk and the others define is left out. A variable of the environment
# declares nothing.
DECLARED := yes
define ask
$(foreach name,$(declared),$(eval override undefine $(name)))
$(eval include $(folder)/Makefile)
$(foreach name,$(declared),$(info $(folder)|$(name)|$($(name))))
endef

$(foreach folder,$(FOLDERS),$(ask))
declared: ;
