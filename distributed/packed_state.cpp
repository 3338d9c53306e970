#include "distributed/packed_state.h"

#include <cstring>

#include "core/check.h"

namespace lockstep::distributed {
namespace {

// Shows every piece as the bytes it lies in.
class Bytes : public StateIo {
 public:
  void flat(const std::string&, Tensor& value, Fold) final {
    piece(value.mutable_bytes_data(), value.bytes());
  }
  void value(const std::string&, int64_t& value, Fold) final { piece(&value, sizeof value); }
  void value(const std::string&, double& value, Fold) final { piece(&value, sizeof value); }

 protected:
  virtual void piece(void* data, int64_t bytes) = 0;
};

class Measure final : public Bytes {
 public:
  int64_t bytes = 0;

 private:
  void piece(void*, int64_t more) override { bytes += more; }
};

enum class Direction { pack, unpack };

class Copy final : public Bytes {
 public:
  Copy(const Tensor& bytes, Direction direction)
      : bytes_(bytes),
        at_(static_cast<std::byte*>(bytes.mutable_bytes_data())),
        left_(bytes.bytes()),
        direction_(direction) {}
  void expect_end() const {
    check(left_ == 0, "[distributed.state] {} bytes of {} were not asked for", left_,
          bytes_.bytes());
  }

 private:
  void piece(void* data, int64_t bytes) override {
    check(bytes <= left_, "[distributed.state] expected {} bytes more, got {}", bytes, left_);
    if (bytes == 0) return;
    if (direction_ == Direction::pack)
      std::memcpy(at_, data, static_cast<size_t>(bytes));
    else
      std::memcpy(data, at_, static_cast<size_t>(bytes));
    at_ += bytes;
    left_ -= bytes;
  }

  Tensor bytes_;
  std::byte* at_;
  int64_t left_;
  Direction direction_;
};

void walk_over(const Tensor& bytes, const StateWalk& walk, Direction direction) {
  Copy copy(bytes, direction);
  walk(copy);
  copy.expect_end();
}

}  // namespace

int64_t packed_bytes(const StateWalk& walk) {
  Measure measure;
  walk(measure);
  return measure.bytes;
}
void pack_state(const Tensor& bytes, const StateWalk& walk) {
  walk_over(bytes, walk, Direction::pack);
}
void unpack_state(const Tensor& bytes, const StateWalk& walk) {
  walk_over(bytes, walk, Direction::unpack);
}

}  // namespace lockstep::distributed
