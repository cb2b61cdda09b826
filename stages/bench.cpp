// The work of the main ladder's phases, for `make bench`.
#include "bench/work.h"

#include <cmath>

// Operations: x·W1 and a·W2; xᵀ·da, aᵀ·dz and dz·W2ᵀ. A multiply-add is two.
//
// Bytes: forward reads x, the labels and the parameters and writes a and p. Backward reads x, the
// labels, a and p, and reads and writes the parameters. An operand counts wherever it lies. What a
// stage moves beyond that (00 writes dW1 and reads it again) does not count.
struct work work_of(const std::string &column, const numbers &row) {
    const double pixels = 784, classes = 10, hidden = row.at("hidden");
    const double samples = row.at("epochs") * row.at("train_samples");
    const double batches = row.at("epochs") * std::ceil(row.at("train_samples") / row.at("batch"));
    const double parameters = pixels * hidden + hidden + hidden * classes + classes;
    const double sample_bytes = samples * (1 + sizeof(float) * (pixels + hidden + classes));
    const double parameter_bytes = batches * sizeof(float) * parameters;
    if (column == "forward_s")
        return {2 * samples * hidden * (pixels + classes), sample_bytes + parameter_bytes};
    if (column == "backward_s")
        return {2 * samples * hidden * (pixels + 2 * classes), sample_bytes + 2 * parameter_bytes};
    return {};
}
