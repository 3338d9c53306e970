#include "apps/report/export/scalars.h"

namespace lockstep::apps {
namespace {

void collect(const nlohmann::json& object, char separator, const std::string& prefix,
             Scalars& scalars) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix + key;
    if (value.is_object() && key != "parameters")
      collect(value, separator, name + separator, scalars);
    else if (value.is_boolean())
      scalars.emplace_back(name, value.get<bool>() ? 1 : 0);
    else if (value.is_number() || value.is_null())
      scalars.emplace_back(name, value);
  }
}

}  // namespace

Scalars scalars_of(const nlohmann::json& step, char separator) {
  Scalars scalars;
  collect(step, separator, "", scalars);
  return scalars;
}

}  // namespace lockstep::apps
