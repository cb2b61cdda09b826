// Preloaded into a stage (LD_PRELOAD), it makes a machine of two cores pass for one of 64: a stage
// that starts no more threads than there are processors then starts all that it is asked for.
int omp_get_num_procs(void) {
    return 64;
}
