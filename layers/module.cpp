#include "layers/module.h"

#include <algorithm>

#include "autograd/leaf.h"

namespace lockstep::layers {
namespace {

void check_name(const std::string& name) {
  check(!name.empty() && name.front() != '.' && name.back() != '.',
        "[layers.module] name; expected letters, digits, dots inside, got '{}'", name);
}

}  // namespace

void Module::add_parameter(std::string name, Tensor& slot, Decay decay) {
  check_name(name);
  autograd::require_grad(slot);
  Entry entry;
  entry.parameter = {.name = std::move(name), .slot = &slot, .decay = decay == Decay::yes};
  entries_.push_back(std::move(entry));
}

void Module::add_buffer(std::string name, Tensor& slot) {
  check_name(name);
  check(slot.defined() && (slot.dtype() == DType::f32 || slot.dtype() == DType::i64),
        "[layers.module] buffer '{}'; expected f32 or i64, got {}", name,
        slot.defined() ? name_of(slot.dtype()) : "nothing");
  buffers_.push_back({std::move(name), &slot});
}

void Module::add_child(std::string name, Module& child) {
  check_name(name);
  Entry entry;
  entry.child_name = std::move(name);
  entry.child = &child;
  entries_.push_back(std::move(entry));
}

void Module::tie(std::string alias, std::string name) {
  check_name(alias);
  ties_.emplace_back(std::move(alias), std::move(name));
}

std::vector<Parameter> Module::parameters() {
  std::vector<Parameter> all;
  for (const Entry& entry : entries_) {
    if (entry.child == nullptr) {
      all.push_back(entry.parameter);
      continue;
    }
    for (Parameter p : entry.child->parameters()) {
      p.name = entry.child_name + "." + p.name;
      for (std::string& alias : p.aliases) alias = entry.child_name + "." + alias;
      all.push_back(std::move(p));
    }
  }
  for (const auto& [alias, name] : ties_) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
    check(found != all.end(), "[layers.module] '{}' is tied to '{}', which is no parameter", alias,
          name);
    found->aliases.push_back(alias);
  }
  std::vector<std::string> names;
  for (const Parameter& p : all) {
    names.push_back(p.name);
    names.insert(names.end(), p.aliases.begin(), p.aliases.end());
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check(twice == names.end(), "[layers.module] two parameters are named '{}'",
        twice == names.end() ? std::string() : *twice);
  return all;
}

std::vector<Buffer> Module::buffers() {
  std::vector<Buffer> all;
  visit([&](const std::string& name, Module& module) {
    for (const Buffer& b : module.buffers_)
      all.push_back({name.empty() ? b.name : name + "." + b.name, b.slot});
  });
  std::vector<std::string> names;
  for (const Buffer& b : all) names.push_back(b.name);
  for (const Parameter& p : parameters()) names.push_back(p.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  check(twice == names.end(), "[layers.module] two buffers or parameters are named '{}'",
        twice == names.end() ? std::string() : *twice);
  return all;
}

void Module::visit(const std::function<void(const std::string& name, Module&)>& f) {
  f("", *this);
  for (const Entry& entry : entries_) {
    if (entry.child == nullptr) continue;
    entry.child->visit([&](const std::string& name, Module& module) {
      f(name.empty() ? entry.child_name : entry.child_name + "." + name, module);
    });
  }
}

void Module::set_mode(Mode mode) {
  mode_ = mode;
  for (const Entry& entry : entries_)
    if (entry.child != nullptr) entry.child->set_mode(mode);
}

int64_t parameter_count(Module& module) {
  int64_t count = 0;
  for (const Parameter& p : module.parameters()) count += p.slot->numel();
  return count;
}

void buffer_state(Module& module, StateIo& io) {
  for (const Buffer& b : module.buffers()) io.flat(b.name, *b.slot, Fold::replicated);
}

}  // namespace lockstep::layers
