#pragma once
#include "autograd/table_gradient.h"
#include "core/sparse_grad.h"

namespace lockstep::distributed {

/// Lists of rows with a gradient each are added up as bags of one row each, in one table: what
/// coalesces lookups coalesces them, too, sorting by row and adding in order of the lists.
/// `rows`: of all tables together, or of the range that is held. UsageError beyond 2^31 - 1.
autograd::TableGradient sum_of_lists(int64_t rows, int64_t width);

/// Adds a list, whose rows need not ascend, and which must not be written until the sum is made.
void add_list(autograd::TableGradient& sum, const SparseGrad& list);

}  // namespace lockstep::distributed
