#include "apps/training/model_file.h"

#include "apps/report/run_directory.h"
#include "core/kernels/elementwise.h"
#include "core/kernels/reduce.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <span>

namespace lockstep::apps {
namespace {

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

void check_finite(const std::string& name, const Tensor& values) {
  const int64_t at = kernel::first_non_finite(values);
  check(at < 0, "{}; expected finite values, got {} at {}", name,
        at < 0 ? 0 : values.data<float>()[at], at);
}

// What counts goes on being counted, in numbers that are exact as doubles, too.
void check_counts(const std::string& name, const Tensor& counts) {
  constexpr int64_t kMost = int64_t{1} << 52;
  for (const int64_t n : std::span(counts.data<int64_t>(), static_cast<size_t>(counts.numel())))
    check(n >= 0 && n <= kMost, "{}; expected counts from 0 to {}, got {}", name, kMost, n);
}

}  // namespace

void write_model(const std::string& path, const std::string& kind, Metadata metadata,
                 const optim::FlatParams& params, const Tensor& weights,
                 const std::vector<layers::Buffer>& buffers) {
  std::vector<NamedTensor> tensors;
  nlohmann::ordered_json aliases = nlohmann::ordered_json::object();
  // In order of construction.
  for (auto slice = params.slices().rbegin(); slice != params.slices().rend(); ++slice) {
    tensors.push_back({slice->name, weights.slice(slice->begin, slice->end).reshape(slice->shape)});
    for (const std::string& alias : slice->aliases) aliases[alias] = slice->name;
  }
  for (const layers::Buffer& buffer : buffers) tensors.push_back({buffer.name, *buffer.slot});
  metadata["format"] = "lockstep";
  metadata["kind"] = kind;
  metadata["aliases"] = aliases.dump();
  write_safetensors(path, tensors, metadata);
}

ModelFile::ModelFile(const std::string& path, const std::string& kind)
    : name_(is_folder(path) ? path + "/" + kModelFile : path), file_(name_) {
  if (metadata("kind") != kind)
    throw bad(fmt::format("expected kind {}, got {}", kind, printable(metadata("kind"))));
}

const std::string& ModelFile::metadata(const std::string& key) const {
  const auto found = file_.metadata().find(key);
  if (found == file_.metadata().end()) throw bad(fmt::format("expected {} in its metadata", key));
  return found->second;
}

int64_t ModelFile::elements() const {
  int64_t n = 0;
  for (const auto& entry : file_.entries()) n = checked_add(n, entry.shape.numel());
  return n;
}

void ModelFile::read_into(layers::Module& model) const {
  const auto parameters = model.parameters();
  const auto buffers = model.buffers();
  const size_t expected = parameters.size() + buffers.size();
  if (expected != file_.entries().size())
    throw bad(fmt::format("expected {} tensors, got {}", expected, file_.entries().size()));
  checked([&] {
    for (const layers::Parameter& p : parameters) {
      const SafetensorsReader::Entry& stored = file_.entry(p.name);
      check(is_floating(stored.dtype) && stored.shape == p.slot->shape(),
            "{}; expected floats {}, got {} {}", p.name, p.slot->shape(), name_of(stored.dtype),
            stored.shape);
      kernel::cast(*p.slot, file_.read(p.name));
      check_finite(p.name, *p.slot);
    }
    for (const layers::Buffer& b : buffers) {
      file_.read_into(b.name, *b.slot);
      if (b.slot->dtype() == DType::f32)
        check_finite(b.name, *b.slot);
      else
        check_counts(b.name, *b.slot);
    }
  });
}

int64_t integer_at(const nlohmann::ordered_json& config, const char* name) {
  const auto& value = config.at(name);
  const bool small = value.is_number_integer() &&
                     !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
  check(small, "{}: expected an integer of 64 bits, got {}", name, printable(value.dump()));
  return value.get<int64_t>();
}

SystemError ModelFile::bad(const std::string& what) const {
  return SystemError(Fault::file,
                     fmt::format("{} is no model of ours: {}", printable(name_), what));
}

}  // namespace lockstep::apps
