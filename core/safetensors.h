#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"

/// The safetensors format (Hugging Face): eight bytes with the length N of
/// the header (little endian), N bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, …,
/// "__metadata__": {text: text}}, then the elements, without gaps.
namespace lockstep {

using Metadata = std::map<std::string, std::string>;

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Writes the tensors in this order, atomically. Names must differ. SystemError(file) on failure,
/// with nothing left behind.
void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata = {});

/// Reads such a file and believes nothing it says: lengths are bounded by the file's size before
/// anything is allocated, arithmetic is checked, offsets must tile the file exactly, names must be
/// unique, and what the format does not allow is a SystemError(file) saying where.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  struct Entry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    int64_t begin = 0, end = 0;  ///< bytes after the header
  };
  /// In order of their place in the file.
  const std::vector<Entry>& entries() const { return entries_; }
  const Metadata& metadata() const { return metadata_; }
  bool contains(const std::string& name) const;
  /// SystemError(file) when there is no such tensor.
  const Entry& entry(const std::string& name) const;
  Tensor read(const std::string& name) const;
  /// Into a tensor of the same shape and dtype; anything else is a SystemError(file).
  void read_into(const std::string& name, const Tensor& out) const;

 private:
  File file_;
  int64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> place_of_;  // in entries_
  Metadata metadata_;
};

}  // namespace lockstep
