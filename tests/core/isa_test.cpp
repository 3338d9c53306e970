#include "core/kernels/cpu/isa.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "core/check.h"
#include "tests/support/kernel_test.h"

#include "test_paths.h"

namespace lockstep::test {
namespace {

TEST(Isa, BaselineIsAlwaysThereAndTheOthersCanBeChosen) {
  const cpu::Isa before = cpu::isa();
  ASSERT_FALSE(cpu::available_isas().empty());
  EXPECT_EQ(cpu::available_isas().front(), cpu::Isa::baseline);
  for (cpu::Isa set : cpu::available_isas()) {
    cpu::use_isa(set);
    EXPECT_EQ(cpu::isa(), set);
    const int picked = cpu::pick(0, 1, 2);
    EXPECT_EQ(picked, static_cast<int>(set));
  }
  cpu::use_isa(before);
  EXPECT_EQ(cpu::name_of(cpu::Isa::avx512), "avx512");
}

// What `command` prints.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

// Note [One table per instruction set]: a weak symbol is an inline function that the linker may
// hand to code for another processor; .init_array would run before the processor was asked.
TEST(Isa, ObjectsOfVectorLoopsShareNoFunctionsAndStartNothing) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers add symbols and constructors of their own";
#endif
  if (output_of("command -v nm").empty() || output_of("command -v objdump").empty())
    GTEST_SKIP() << "nm and objdump are not installed";
  std::istringstream objects(LOCKSTEP_LOOP_OBJECTS);
  int count = 0;
  for (std::string object; std::getline(objects, object, ','); ++count) {
    std::istringstream symbols(output_of("nm '" + object + "'"));
    std::string exported;
    for (std::string line; std::getline(symbols, line);) {
      const char kind = line.size() > 17 ? line[17] : ' ';
      // W, w, V, v: weak; u: unique.
      EXPECT_EQ(std::string("WwVvu").find(kind), std::string::npos) << object << ": " << line;
      if (kind >= 'A' && kind <= 'Z' && kind != 'U') exported += line + "\n";
    }
    EXPECT_EQ(std::count(exported.begin(), exported.end(), '\n'), 1)
        << object << " exports more than its table:\n"
        << exported;
    EXPECT_NE(exported.find("Loops"), std::string::npos) << exported;
    EXPECT_EQ(output_of("objdump -h '" + object + "'").find(".init_array"), std::string::npos)
        << object;
  }
  EXPECT_GE(count, 8) << "objects were looked at";
}

}  // namespace
}  // namespace lockstep::test
