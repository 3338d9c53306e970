#include "data/category.h"

#include <xxhash.h>

namespace lockstep::data {

uint64_t category_hash(std::string_view bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

}  // namespace lockstep::data
