#include "distributed/tables/apart_tables.h"

#include "core/kernels/reduce.h"
#include "distributed/tables/row_copies.h"

namespace lockstep::distributed {

void ApartTables::start() {
  WindowTables::start();
  fetched_.resize(static_cast<size_t>(weight_.size(0)));
}

bool ApartTables::exchange() {
  gradient_of_window_ = window_gradient();
  places_.clear();
  slots().add_places_of(rows_in(gradient_of_window_.rows), places_);
  versions_.clear();
  for (const int64_t place : places_) versions_.push_back(fetched_[place]);
  end_window();
  traffic_.count(gradient_of_window_.count());
  ++traffic_.exchanges;
  return kernel::first_non_finite(gradient_of_window_.values) < 0;
}

void ApartTables::step(const optim::StepVerdict& verdict) {
  if (verdict.apply && gradient_of_window_.count() > 0)
    push(gradient_of_window_, verdict.max_norm > 0 ? verdict.mean_factor : verdict.factor);
  gradient_of_window_ = {};
}

}  // namespace lockstep::distributed
