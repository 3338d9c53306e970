#pragma once
#include <string_view>
#include <vector>

/// Note [One table per instruction set]
/// A file `family_loops.cpp` is compiled once per instruction set with -DLOCKSTEP_ISA=Baseline,
/// Avx2 or Avx512. It includes its raw-pointer header `family_loops.h` and `vec.h` only, keeps
/// everything static and exports one table, `kFamilyLoops<Set>`. Nothing inline of anyone else is
/// compiled with the wider flags, so the linker can never hand an AVX-512 copy of an inline
/// function to baseline code, and no static initialiser runs before the processor was asked. A test
/// checks the objects for weak symbols and .init_array.
namespace lockstep::cpu {

enum class Isa { baseline, avx2, avx512 };

/// The set in use: the best the processor has, or what LOCKSTEP_ISA names (a set that the processor
/// lacks is a UsageError).
Isa isa();
/// For tests: every set this processor has, and a switch. Not while kernels run.
std::vector<Isa> available_isas();
void use_isa(Isa isa);
std::string_view name_of(Isa isa);

/// The table for the set in use.
template <class Table>
const Table& pick(const Table& baseline, const Table& avx2, const Table& avx512) {
  const Isa set = isa();
  return set == Isa::avx512 ? avx512 : set == Isa::avx2 ? avx2 : baseline;
}

}  // namespace lockstep::cpu
