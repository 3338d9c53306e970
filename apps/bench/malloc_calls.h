#pragma once
#include <cstdint>

// Calls of malloc and its kin by any thread and library of this process so far. Only
// lockstep_mallocs has it (benchmarks/count_mallocs.cpp), so this is null in the program itself.
extern "C" int64_t lockstep_malloc_calls() __attribute__((weak));
