#include "core/safetensors.h"

#include "core/check.h"
#include "tests/support/temp_folder.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "test_paths.h"

namespace lockstep {
namespace {

using test::slurp;
using test::spill;
using test::TempFolder;

std::string file_of(const std::string& header, const std::string& data, uint64_t length) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}
std::string file_of(const std::string& header, const std::string& data = "") {
  return file_of(header, data, header.size());
}

// What reading these bytes complains about; "" when it does not. Anything but SystemError(file)
// fails.
std::string complaint(const TempFolder& folder, const std::string& bytes) {
  spill(folder / "x", bytes);
  try {
    const SafetensorsReader reader(folder / "x");
    for (const auto& entry : reader.entries()) reader.read(entry.name);
  } catch (const SystemError& e) {
    EXPECT_EQ(e.fault(), Fault::file);
    return e.what();
  }
  return "";
}

TEST(Safetensors, RoundTripKeepsEveryBitNameAndMetadata) {
  TempFolder folder;
  const Tensor a = from_values<float>({0.1f, 1e-40f, -0.0f, 3e38f, 1, 2}, {2, 3});
  const Tensor b = from_values<int64_t>({-1, (int64_t{1} << 53) + 1});
  const Tensor c = from_values<uint8_t>({1, 2, 255});
  const std::string odd = "a\"b\\c\n\x01 naïve \xf0\x9f\x90\x8d";
  write_safetensors(folder / "m", {{"w", a}, {odd, b}, {"", c}, {"none", zeros({0, 5})}},
                    {{"k", odd}, {"", ""}});

  const SafetensorsReader reader(folder / "m");
  EXPECT_EQ(reader.metadata(), (Metadata{{"k", odd}, {"", ""}}));
  ASSERT_EQ(reader.entries().size(), 4u);
  EXPECT_EQ(std::memcmp(reader.read("w").bytes_data(), a.bytes_data(), 24), 0);
  EXPECT_EQ(values<int64_t>(reader.read(odd)), values<int64_t>(b));
  EXPECT_EQ(values<uint8_t>(reader.read("")), values<uint8_t>(c));
  EXPECT_EQ(reader.read("none").shape(), Shape({0, 5}));
  EXPECT_FALSE(reader.contains("x"));
  EXPECT_THROW(reader.read("x"), SystemError);
  EXPECT_THROW(reader.read_into("w", zeros({3, 2})), SystemError);
}

TEST(Safetensors, ReadsWhatTheReferenceImplementationWrote) {
  const SafetensorsReader reader(LOCKSTEP_SOURCE_DIR "/tests/golden/python.safetensors");
  EXPECT_EQ(reader.metadata(), (Metadata{{"format", "np"}, {"quote", "\"\\ \n"}}));
  EXPECT_EQ(values(reader.read("weight")),
            (std::vector<float>{0.5f, -1.25f, 3, 1e-40f, 65504, -0.0f}));
  EXPECT_EQ(values<int64_t>(reader.read("ids")), (std::vector<int64_t>{-1, int64_t{1} << 40}));
  EXPECT_EQ(values<int32_t>(reader.read("counts")), (std::vector<int32_t>{7, -8}));
  EXPECT_EQ(values<uint8_t>(reader.read("mask")), (std::vector<uint8_t>{0, 255, 1}));
  EXPECT_EQ(reader.entry("half").dtype, DType::f16);
  EXPECT_EQ(reader.read("half").bytes(), 6);
  EXPECT_EQ(reader.read("scalar").item(), 2.5);
  EXPECT_EQ(reader.read("naïve name").item(), 1);
  EXPECT_EQ(reader.read("empty").numel(), 0);
}

TEST(Safetensors, TruncatedAtAnyLengthIsAnError) {
  TempFolder folder;
  const std::string whole = slurp(LOCKSTEP_SOURCE_DIR "/tests/golden/python.safetensors");
  ASSERT_GT(whole.size(), 100u);
  EXPECT_EQ(complaint(folder, whole), "");
  for (size_t n = 0; n < whole.size(); ++n)
    EXPECT_NE(complaint(folder, whole.substr(0, n)), "") << n;
  EXPECT_NE(complaint(folder, whole + '\0'), "");
}

TEST(Safetensors, AFlippedByteInTheHeaderIsNeverMoreThanAnError) {
  TempFolder folder;
  const std::string whole = slurp(LOCKSTEP_SOURCE_DIR "/tests/golden/python.safetensors");
  uint64_t header;
  std::memcpy(&header, whole.data(), 8);
  int caught = 0;
  for (size_t i = 0; i < 8 + header; ++i)
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string broken = whole;
      broken[i] = static_cast<char>(broken[i] ^ (1 << bit));
      caught += complaint(folder, broken).empty() ? 0 : 1;
    }
  // A flip inside a name or a metadata text makes another valid file; everything else is caught.
  EXPECT_GT(caught, static_cast<int>(8 + header) * 8 * 3 / 4);
}

TEST(Safetensors, RefusesWhatTheFormatDoesNotAllow) {
  TempFolder folder;
  const auto tensor = [](const std::string& rest) { return "{\"a\":{" + rest + "}}"; };
  const std::string four(4, 'x');
  EXPECT_EQ(complaint(folder, file_of("{}")), "");
  EXPECT_EQ(
      complaint(folder, file_of(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), four)),
      "");
  EXPECT_EQ(
      complaint(folder,
                file_of(tensor(R"("dtype":"F32","shape":[],"data_offsets":[0,4])") + "   ", four)),
      "");

  const std::pair<std::string, std::string> cases[] = {
      {"", ""},
      {"[]", ""},
      {"{", ""},
      {"{}x", ""},
      {" {}", ""},
      {"{\"a\":1}", ""},
      {"{\"a\":null}", ""},
      {"{\"a\":[1]}", ""},
      {"{\"a\":{}}", ""},
      {"{\"__metadata__\":{\"a\":1}}", ""},
      {"{\"__metadata__\":{\"a\":{}}}", ""},
      {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", ""},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), ""},          // no elements
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])"), four + "y"},  // left over
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[1,5])"), four + "y"},  // a gap
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), four},        // wrong size
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), four},        // backwards
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), four},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), four},
      {tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), four},
      {tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), four},
      {tensor(R"("dtype":"F32","shape":[1,1,1,1,1,1,1],"data_offsets":[0,4])"), four},
      {tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), four},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
       ""},  // 2^64
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,9223372036854775807])"), four},
      {tensor(R"("dtype":"F64","shape":[],"data_offsets":[0,8])"), four + four},
      {tensor(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"), four},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1)"), four},
      {tensor(R"("dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4])"), four},
      {tensor(R"("dtype":"F32","shape":[1])"), four},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       four},
      {R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       four},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
       four},
  };
  for (const auto& [header, data] : cases)
    EXPECT_NE(complaint(folder, file_of(header, data)), "") << header;
}

TEST(Safetensors, AHugeHeaderLengthAllocatesNothing) {
  TempFolder folder;
  for (uint64_t length :
       {uint64_t{3}, uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7})
    EXPECT_NE(complaint(folder, file_of("{}", "", length)), "") << length;
  // A deep header is refused at the first level too many.
  EXPECT_NE(complaint(folder, file_of("{\"a\":" + std::string(1 << 20, '['))), "");
}

// Not with the square of their number: that would be a minute.
TEST(Safetensors, ManyTensorsAreWrittenAndFoundInNoTime) {
  TempFolder folder;
  const Tensor one = zeros({1});
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 100'000; ++i)
    tensors.push_back({"blocks." + std::to_string(i) + ".second.norm.weight", one});
  const auto begin = std::chrono::steady_clock::now();
  write_safetensors(folder / "m", tensors);
  const SafetensorsReader reader(folder / "m");
  for (const auto& tensor : tensors) EXPECT_TRUE(reader.contains(tensor.name));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Safetensors, WritingIsRefusedForEqualNamesAndBadText) {
  TempFolder folder;
  const Tensor a = zeros({1});
  EXPECT_THROW(write_safetensors(folder / "m", {{"a", a}, {"a", a}}), UsageError);
  EXPECT_THROW(write_safetensors(folder / "m", {{"__metadata__", a}}), UsageError);
  EXPECT_THROW(write_safetensors(folder / "m", {{"\xff", a}}), UsageError);
  EXPECT_THROW(write_safetensors(folder / "none/m", {{"a", a}}), SystemError);
  EXPECT_EQ(folder.entries(), 0);
}

}  // namespace
}  // namespace lockstep
