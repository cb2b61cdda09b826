// peer_openblas with a current OpenBLAS: scipy-openblas32 from PyPI, with which SciPy's wheels are
// built. Its functions have a prefix.
#define cblas_sgemm scipy_cblas_sgemm
#define openblas_get_num_threads scipy_openblas_get_num_threads
#define openblas_set_num_threads scipy_openblas_set_num_threads
#include "peer_openblas.c" // NOLINT(bugprone-suspicious-include)
