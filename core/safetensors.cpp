#include "core/safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

namespace lockstep {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "safetensors is little endian; so is this code");

constexpr std::array<std::pair<std::string_view, DType>, 6> kCodes{{{"F32", DType::f32},
                                                                    {"F16", DType::f16},
                                                                    {"BF16", DType::bf16},
                                                                    {"I64", DType::i64},
                                                                    {"I32", DType::i32},
                                                                    {"U8", DType::u8}}};
constexpr std::string_view kMetadataKey = "__metadata__";

std::string_view code_of(DType type) {
  return std::find_if(kCodes.begin(), kCodes.end(), [&](auto& c) { return c.second == type; })
      ->first;
}

/// Takes in the header event by event and keeps no more than the entries, so that a header can ask
/// for no more memory than its own length. Depth is bounded because only three levels are accepted.
class HeaderParser final : public nlohmann::json_sax<json> {
 public:
  std::vector<SafetensorsReader::Entry> entries;
  Metadata metadata;
  std::string problem;

  bool start_object(size_t) override {
    switch (place_) {
      case Place::start:
        place_ = Place::top;
        return true;
      case Place::tensor_value:
        place_ = Place::tensor;
        field_ = 0;
        seen_ = 0;
        return true;
      case Place::metadata_value:
        place_ = Place::metadata;
        return true;
      default:
        return reject("an object");
    }
  }
  bool end_object() override {
    if (place_ == Place::tensor) {
      if (seen_ != 7)
        return fail(fmt::format("tensor {} lacks dtype, shape or data_offsets", shown()));
      entries.push_back(std::move(entry_));
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    } else {
      place_ = Place::end;
    }
    return true;
  }
  bool key(std::string& name) override {
    if (place_ == Place::top) {
      if (!names_.insert(name).second)
        return fail(fmt::format("{} appears twice", printable(name)));
      entry_ = {};
      entry_.name = name;
      place_ = name == kMetadataKey ? Place::metadata_value : Place::tensor_value;
      return true;
    }
    if (place_ == Place::metadata) {
      key_ = name;
      if (metadata.contains(name))
        return fail(fmt::format("metadata {} appears twice", printable(name)));
      return true;
    }
    field_ = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
    if (field_ == 0)
      return fail(fmt::format("tensor {} has the unknown field {}", shown(), printable(name)));
    if ((seen_ & field_) != 0) return fail(fmt::format("tensor {} has {} twice", shown(), name));
    seen_ |= field_;
    return true;
  }
  bool string(std::string& text) override {
    if (place_ == Place::metadata) return metadata.emplace(key_, text), true;
    if (place_ != Place::tensor || field_ != 1) return reject("a string");
    const auto code =
        std::find_if(kCodes.begin(), kCodes.end(), [&](auto& c) { return c.first == text; });
    if (code == kCodes.end())
      return fail(fmt::format("tensor {} has dtype {}; expected F32, F16, BF16, I64, I32 or U8",
                              shown(), printable(text)));
    entry_.dtype = code->second;
    return true;
  }
  bool start_array(size_t) override {
    if (place_ != Place::tensor || (field_ != 2 && field_ != 4)) return reject("an array");
    place_ = Place::array;
    count_ = 0;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::array) return reject("a number");
    if (value > static_cast<uint64_t>(INT64_MAX))
      return fail(fmt::format("tensor {}: {} is too large", shown(), value));
    if (count_ == (field_ == 2 ? Shape::kMaxRank : 2))
      return fail(fmt::format("tensor {}: too many numbers; expected {}", shown(),
                              field_ == 2 ? "at most 6 dimensions" : "two offsets"));
    numbers_[count_++] = static_cast<int64_t>(value);
    return true;
  }
  bool end_array() override {
    place_ = Place::tensor;
    if (field_ == 2) {
      entry_.shape = Shape(std::span<const int64_t>(numbers_.data(), count_));
      return true;
    }
    if (count_ != 2)
      return fail(fmt::format("tensor {}: expected two offsets, got {}", shown(), count_));
    entry_.begin = numbers_[0];
    entry_.end = numbers_[1];
    return true;
  }
  bool null() override { return reject("null"); }
  bool boolean(bool) override { return reject("a truth value"); }
  bool number_integer(number_integer_t) override { return reject("a negative number"); }
  bool number_float(number_float_t, const std::string&) override { return reject("a fraction"); }
  bool binary(binary_t&) override { return reject("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail(fmt::format("no valid JSON at byte {} of the header", position));
  }

 private:
  enum class Place { start, top, tensor_value, tensor, array, metadata_value, metadata, end };
  bool fail(std::string text) {
    problem = std::move(text);
    return false;
  }
  bool reject(std::string_view what) {
    if (place_ == Place::start)
      return fail(fmt::format("the header is {}; expected an object", what));
    return fail(fmt::format("unexpected {} in the header, near {}", what, shown()));
  }
  std::string shown() const { return printable(entry_.name); }

  Place place_ = Place::start;
  SafetensorsReader::Entry entry_;
  std::set<std::string> names_;
  std::string key_;
  int field_ = 0, seen_ = 0;  // bits: 1 dtype, 2 shape, 4 data_offsets
  std::array<int64_t, Shape::kMaxRank> numbers_{};
  int count_ = 0;
};

[[noreturn]] void malformed(const std::string& path, const std::string& what) {
  throw SystemError(Fault::file,
                    fmt::format("{} is no valid safetensors file: {}", printable(path), what));
}

// Entries sorted by place must tile [0, data): no gap, no overlap, nothing left over.
void check_tiling(const std::string& path, const std::vector<SafetensorsReader::Entry>& entries,
                  int64_t data) {
  int64_t at = 0;
  for (const auto& e : entries) {
    if (e.begin != at || e.end < e.begin || e.end > data)
      malformed(path,
                fmt::format("tensor {} lies at [{}, {}); expected to begin at {} and to end by {}",
                            printable(e.name), e.begin, e.end, at, data));
    if (checked_mul(e.shape.numel(), size_of(e.dtype)) != e.end - e.begin)
      malformed(path, fmt::format("tensor {} is {} {} but has {} bytes", printable(e.name),
                                  name_of(e.dtype), to_string(e.shape), e.end - e.begin));
    at = e.end;
  }
  if (at != data) malformed(path, fmt::format("expected {} bytes of elements, got {}", at, data));
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                       const Metadata& metadata) {
  using nlohmann::ordered_json;
  // A list of members, which nobody searches: there may be many.
  ordered_json header = ordered_json::object();
  auto& members = header.get_ref<ordered_json::object_t&>();
  const auto add = [&](const std::string& name, ordered_json value) {
    members.emplace_back(name, std::move(value));
  };
  if (!metadata.empty()) add(std::string(kMetadataKey), metadata);
  std::set<std::string_view> names{kMetadataKey};
  int64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    check(names.insert(name).second, "[core.safetensors] the name {} cannot be used (again)",
          printable(name));
    const int64_t end = checked_add(at, tensor.bytes());
    add(name, {{"dtype", code_of(tensor.dtype())},
               {"shape", tensor.shape().dims()},
               {"data_offsets", {at, end}}});
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    throw UsageError("[core.safetensors] names and metadata must be valid UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // elements begin at a multiple of 8
  const uint64_t length = text.size();

  AtomicFile file(path);
  file.write(&length, sizeof length);
  file.write(text);
  for (const auto& [name, tensor] : tensors) file.write(tensor.bytes_data(), tensor.bytes());
  file.commit();
}

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path, File::Mode::read) {
  const int64_t size = file_.size();
  uint64_t length = 0;
  if (size < 8) malformed(path, fmt::format("expected at least 8 bytes, got {}", size));
  file_.read_at(0, &length, sizeof length);
  if (length > static_cast<uint64_t>(size - 8))
    malformed(path, fmt::format("a header of {} bytes in a file of {}", length, size));
  std::string text(length, '\0');
  file_.read_at(8, text.data(), static_cast<int64_t>(length));
  data_begin_ = 8 + static_cast<int64_t>(length);
  if (text.empty() || text[0] != '{') malformed(path, "the header does not begin with '{'");

  HeaderParser parser;
  try {
    if (!json::sax_parse(text, &parser) && parser.problem.empty()) parser.problem = "no valid JSON";
    if (!parser.problem.empty()) malformed(path, parser.problem);
    entries_ = std::move(parser.entries);
    metadata_ = std::move(parser.metadata);
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    check_tiling(path, entries_, size - data_begin_);
    for (size_t i = 0; i < entries_.size(); ++i) place_of_.emplace(entries_[i].name, i);
  } catch (const UsageError& e) {  // a shape whose size overflows
    malformed(path, e.what());
  }
}

bool SafetensorsReader::contains(const std::string& name) const { return place_of_.contains(name); }

const SafetensorsReader::Entry& SafetensorsReader::entry(const std::string& name) const {
  const auto found = place_of_.find(name);
  if (found == place_of_.end())
    throw SystemError(Fault::file,
                      fmt::format("{} has no tensor {}", printable(file_.path()), printable(name)));
  return entries_[found->second];
}

Tensor SafetensorsReader::read(const std::string& name) const {
  const Entry& e = entry(name);
  const Tensor out = Tensor::empty(e.shape, e.dtype);
  read_into(name, out);
  return out;
}

void SafetensorsReader::read_into(const std::string& name, const Tensor& out) const {
  const Entry& e = entry(name);
  if (e.dtype != out.dtype() || e.shape != out.shape())
    throw SystemError(
        Fault::file,
        fmt::format("{}: {} does not fit; expected {}, got {} {}", printable(file_.path()),
                    printable(name), describe(out), name_of(e.dtype), to_string(e.shape)));
  file_.read_at(data_begin_ + e.begin, out.mutable_bytes_data(), e.end - e.begin);
}

}  // namespace lockstep
