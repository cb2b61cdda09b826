// Preloaded into a stage (LD_PRELOAD), it tells the stage that the machine has 64 processors. A
// stage that starts at most one thread for each processor then starts all that it is asked for.
int omp_get_num_procs(void) {
    return 64;
}
