#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "core/tensor.h"

namespace lockstep {

/// How a piece of state behaves when the number of ranks changes.
enum class Fold { replicated, sum_over_ranks, per_rank, resharded };

/// Walks over the state of an object, to save, load or compare it: the object lists its pieces once
/// and the StateIo decides the direction. Loading writes into what is passed.
class StateIo {
 public:
  virtual ~StateIo() = default;
  virtual void flat(const std::string& name, Tensor& value, Fold fold) = 0;
  virtual void value(const std::string& name, int64_t& value, Fold fold) = 0;
  virtual void value(const std::string& name, double& value, Fold fold) = 0;
};

/// Puts a prefix before the names of an object within another.
class PrefixedState final : public StateIo {
 public:
  PrefixedState(StateIo& io, std::string prefix) : io_(io), prefix_(std::move(prefix)) {}
  void flat(const std::string& name, Tensor& value, Fold fold) override {
    io_.flat(prefix_ + name, value, fold);
  }
  void value(const std::string& name, int64_t& value, Fold fold) override {
    io_.value(prefix_ + name, value, fold);
  }
  void value(const std::string& name, double& value, Fold fold) override {
    io_.value(prefix_ + name, value, fold);
  }

 private:
  StateIo& io_;
  std::string prefix_;
};

}  // namespace lockstep
