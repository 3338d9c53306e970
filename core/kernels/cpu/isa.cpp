#include "core/kernels/cpu/isa.h"

#include <cstdlib>
#include <string>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/check.h"

namespace lockstep::cpu {
namespace {

#if defined(__x86_64__)
bool converts_halves() {  // f16c, of which __builtin_cpu_supports of clang 14 has not heard
  unsigned a, b, c = 0, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool has(Isa set) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  switch (set) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && converts_halves();
    case Isa::avx512:
      return has(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  }
#endif
  return set == Isa::baseline;
}

Isa choose() {
  const char* wanted = std::getenv("LOCKSTEP_ISA");
  if (wanted == nullptr || *wanted == 0) return available_isas().back();
  for (Isa set : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (name_of(set) == wanted) {
      check(has(set), "[core.isa] LOCKSTEP_ISA={}; this processor does not have it", wanted);
      return set;
    }
  throw UsageError(
      fmt::format("[core.isa] LOCKSTEP_ISA; expected baseline, avx2 or avx512, got {}", wanted));
}

Isa& current() {
  static Isa set = choose();
  return set;
}

}  // namespace

Isa isa() { return current(); }

std::vector<Isa> available_isas() {
  std::vector<Isa> sets;
  for (Isa set : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (has(set)) sets.push_back(set);
  return sets;
}

void use_isa(Isa set) {
  check(has(set), "[core.isa] this processor does not have {}", name_of(set));
  current() = set;
}

std::string_view name_of(Isa set) {
  constexpr std::string_view names[] = {"baseline", "avx2", "avx512"};
  return names[static_cast<int>(set)];
}

}  // namespace lockstep::cpu
