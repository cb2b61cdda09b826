// What a phase has to do, by formula. A ladder that knows it defines work_of() in a file bench.cpp
// in its folder.
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include <map>
#include <string>

// The numbers of a program's row, by the names of their columns.
typedef std::map<std::string, double> numbers;

struct work {
    double flops; // operations in the whole run; 0: not known
    double bytes; // compulsory traffic: each operand is read once and each result is written once
};

// Returns the work of the run whose row this is, in the phase that this column times.
struct work work_of(const std::string &column, const numbers &row);

#endif
