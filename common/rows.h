// A run's result as a row of a CSV file. The calls that write the values write the header, too.
#ifndef COMMON_ROWS_H
#define COMMON_ROWS_H

#ifdef __cplusplus
extern "C" {
#endif

struct row {
    char names[1024];
    char values[1024];
    const char *option; // that names the row's file: "csv", or what a ladder sets
};

// Returns a row with stage, device ("cpu", or the GPU's name) and threads (0: does not apply). The
// order of the other columns: the ladder's parameters, dataset, load_s, setup_s, the ladder's time,
// its phases, its results, gflops; then add_peaks().
struct row begin_row(const char *device, int threads);

// Adds peak_rss_mib, which is measured here, and peak_vram_mib (0: does not apply).
void add_peaks(struct row *row, double peak_vram_mib);

// Each adds a column. A value that does not apply is the text "".
void add_text(struct row *row, const char *name, const char *value);
void add_int(struct row *row, const char *name, unsigned long long value);
void add_seconds(struct row *row, const char *name, double value); // in nanoseconds, as the clock
void add_optional_seconds(struct row *row, const char *name, double value); // 0: does not apply
// With the fewest digits that read back as the same number: 0.1 instead of 0.100000001.
void add_float(struct row *row, const char *name, float value);
void add_number(struct row *row, const char *name, double value);

// Appends the row to its file, after the header if the file is empty. Returns 0, or EXIT_RUN_FAILED
// after one line.
int append_row(const char *path, const struct row *row);

// Tries the row's file. It must be new, empty, or hold the header of this row and whole rows.
// Otherwise prints one line and exits with EXIT_BAD_INPUT.
void check_results_file(const char *path, const struct row *row);

#ifdef __cplusplus
}
#endif

#endif
