#include "engine/checkpoint/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <numeric>

#include "tests/checkpoint/support.hpp"

namespace engine::checkpoint {
namespace {

TEST(Safetensors, WritesAndReadsEveryType) {
  const TemporaryDirectory scratch;
  const std::vector<float> values = {0.5F, -1.0F / 3, 1e-3F, 65504.0F, 0, -2};
  const std::vector<std::int64_t> longs = {INT64_MIN, 7};
  {
    SafetensorsWriter writer(scratch / "a.safetensors", {{"none", DType::f32, {0, 4}},
                                                         {"f32", DType::f32, {2, 3}},
                                                         {"bf16", DType::bf16, {6}},
                                                         {"f16", DType::f16, {3, 2, 1}},
                                                         {"i64", DType::i64, {2}},
                                                         {"scalar", DType::u8, {}},
                                                         {"end", DType::f32, {0}}});
    writer.append_f32("f32", std::span(values).first(1));
    writer.append_f32("f32", std::span(values).subspan(1));
    writer.append_f32("bf16", values);
    writer.append_f32("f16", values);
    writer.append("i64", std::as_bytes(std::span(longs)));
    EXPECT_THROW(writer.commit(), Error);
    writer.append("scalar", std::as_bytes(std::span("x", 1)));
    EXPECT_FALSE(std::filesystem::exists(scratch / "a.safetensors"));
    writer.commit();
  }
  EXPECT_EQ(scratch.entries(), 1);
  const SafetensorsFile file = SafetensorsFile::open(scratch / "a.safetensors");
  ASSERT_EQ(file.tensors().size(), 7U);
  EXPECT_EQ(file.tensors()[1].name, "f32");
  EXPECT_EQ(file.tensors()[1].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}}));
  EXPECT_EQ(file.at("scalar").numel(), 1);
  EXPECT_EQ(file.at("none").numel(), 0);
  EXPECT_EQ(file.find("nothing"), nullptr);
  const std::string bytes = read_file(scratch / "a.safetensors");
  EXPECT_EQ(bytes.find(std::string_view(reinterpret_cast<const char*>(values.data()), 24)) % 64,
            0U);

  std::vector<float> read(6);
  file.read_f32("f32", read);
  EXPECT_EQ(read, values);
  file.read_f32("bf16", read);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(read[i], static_cast<float>(bf16(values[i])));
  file.read_f32("f16", read);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(read[i], static_cast<float>(f16(values[i])));
  std::vector<float> part(2);
  file.read_f32("f32", part, 3);
  EXPECT_EQ(part, (std::vector<float>{65504.0F, 0}));
  EXPECT_THROW(file.read_f32("f32", part, 5), Error);
  EXPECT_EQ(std::memcmp(file.data("i64").data(), longs.data(), 16), 0);
  expect_error(Errc::corrupt_data, {"i64", "I64"}, [&] { file.read_f32("i64", part); });
  expect_error(Errc::corrupt_data, {"a.safetensors", "nothing"}, [&] { file.data("nothing"); });
}

TEST(Safetensors, ReadsDoublesAndUnalignedData) {
  const TemporaryDirectory scratch;
  // One byte in front leaves everything behind it unaligned.
  std::string bytes = safetensors_bytes(
      R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"d":{"dtype":"F64","shape":[2],"data_offsets":[1,17]},"__metadata__":null}   )",
      17);
  const double values[2] = {0.1, -3};
  std::memcpy(bytes.data() + bytes.size() - 16, values, 16);
  const SafetensorsFile file = SafetensorsFile::open(scratch.write("a", bytes));
  std::vector<float> read(2);
  file.read_f32("d", read);
  EXPECT_EQ(read, (std::vector<float>{0.1F, -3}));
  EXPECT_TRUE(file.metadata().empty());
}

TEST(Safetensors, ListsTypesItCannotRead) {
  const TemporaryDirectory scratch;
  const SafetensorsFile file = SafetensorsFile::open(scratch.write(
      "a",
      safetensors_bytes(
          R"({"z":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},"a":{"dtype":"F4","shape":[2,1],"data_offsets":[3,4]},"c":{"dtype":"BOOL","shape":[],"data_offsets":[4,5]}})",
          5)));
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.tensors()[0].name, "z");
  EXPECT_EQ(file.tensors()[0].dtype, "F8_E4M3");
}

TEST(Safetensors, ReadsAnEmptyFileOfTensors) {
  const TemporaryDirectory scratch;
  EXPECT_TRUE(
      SafetensorsFile::open(scratch.write("a", safetensors_bytes("{}", 0))).tensors().empty());
  SafetensorsWriter writer(scratch / "b", {}, {});
  writer.commit();
  EXPECT_TRUE(SafetensorsFile::open(scratch / "b").metadata().empty());
}

struct Malformed {
  const char* name;
  std::string bytes;
  std::vector<std::string> parts;
};

std::string one(const std::string& info, std::size_t data_bytes = 4) {
  return safetensors_bytes("{\"t\":{" + info + "}}", data_bytes);
}

std::vector<Malformed> malformed_files() {
  const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  std::string huge = one(good);
  const std::uint64_t too_long = 100'000'001;
  std::memcpy(huge.data(), &too_long, 8);
  std::string endless = one(good);
  std::memset(endless.data(), 0xff, 8);
  std::string beyond = one(good);
  beyond[0] = static_cast<char>(beyond[0] + 5);
  return {
      {"Empty", "", {"0 bytes"}},
      {"Short", "1234567", {"7 bytes"}},
      {"HeaderTooLong", huge, {"100000001"}},
      {"HeaderLengthWraps", endless, {"18446744073709551615"}},
      {"HeaderPastTheEnd", beyond, {"truncated"}},
      {"NoHeader", safetensors_bytes("", 0), {"'{'"}},
      {"LeadingSpace", safetensors_bytes(" {}", 0), {"'{'"}},
      {"AnArray", safetensors_bytes("[]", 0), {"'{'"}},
      {"NotJson", safetensors_bytes("{\"t\":", 0), {"JSON"}},
      {"TrailingText", safetensors_bytes("{}x", 0), {"JSON"}},
      {"ZeroByteAfter", safetensors_bytes(std::string("{}\0{", 4), 0), {"zero byte"}},
      {"NotUtf8", safetensors_bytes("{\"\xff\":{" + good + "}}", 4), {"JSON", "UTF-8"}},
      {"Truncated", one(good, 3), {"4 bytes", "3", "truncated"}},
      {"BytesPastTheEnd", one(good, 5), {"past the end"}},
      {"DuplicateTensor",
       safetensors_bytes("{\"t\":{" + good + "},\"t\":{" + good + "}}", 4),
       {"\"t\"", "twice"}},
      {"DuplicateMetadata",
       safetensors_bytes(R"({"__metadata__":{"a":"b","a":"c"}})", 0),
       {"\"a\"", "twice"}},
      {"DuplicateField", one(good + R"(,"dtype":"F32")"), {"dtype", "twice"}},
      {"UnknownField", one(good + R"(,"strides":[1])"), {"strides"}},
      {"MissingField", one(R"("dtype":"F32","shape":[1])"), {"\"t\"", "data_offsets"}},
      {"UnknownType", one(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), {"F31"}},
      {"SizeMismatch",
       one(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
       {"\"t\"", "8 bytes", "hold 4"}},
      {"Backwards", one(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), {"backwards"}},
      {"ShapeOverflows",
       one(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])", 0),
       {"too large"}},
      {"BitsOverflow",
       one(R"("dtype":"F32","shape":[576460752303423489],"data_offsets":[0,4])"),
       {"too large"}},
      {"DimensionTooLarge",
       one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4])"),
       {"9223372036854775808"}},
      {"NegativeDimension",
       one(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
       {"negative"}},
      {"FractionalDimension",
       one(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
       {"whole"}},
      {"NestedShape", one(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), {"array"}},
      {"ThreeOffsets", one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), {"two"}},
      {"OneOffset", one(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), {"two"}},
      {"HalfByte", one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2), {"12 bits"}},
      {"Hole",
       safetensors_bytes(
           R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
           3),
       {"\"b\"", "hole"}},
      {"HoleAtTheStart", one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", 8), {"hole"}},
      {"Overlap",
       safetensors_bytes(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       {"\"b\"", "overlap"}},
      {"MetadataNumber", safetensors_bytes(R"({"__metadata__":{"a":1}})", 0), {"\"a\"", "string"}},
      {"MetadataText", safetensors_bytes(R"({"__metadata__":"a"})", 0), {"__metadata__"}},
      {"TensorNull", safetensors_bytes(R"({"t":null})", 0), {"\"t\"", "null"}},
      {"TensorNumber", safetensors_bytes(R"({"t":3})", 0), {"\"t\""}},
      {"LineBreakInName", safetensors_bytes(R"({"a\nb":3})", 0), {"a?b"}},
  };
}

TEST(Safetensors, RefusesMalformedFilesByFileAndTensor) {
  const TemporaryDirectory scratch;
  for (const Malformed& malformed : malformed_files()) {
    SCOPED_TRACE(malformed.name);
    const auto path = scratch.write("broken.safetensors", malformed.bytes);
    expect_error(Errc::corrupt_data, {"broken.safetensors"}, [&] { SafetensorsFile::open(path); });
    for (const std::string& part : malformed.parts) {
      expect_error(Errc::corrupt_data, {part}, [&] { SafetensorsFile::open(path); });
    }
  }
}

TEST(Safetensors, RefusesEveryTruncationOfAGoodFile) {
  const TemporaryDirectory scratch;
  const std::string bytes = one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const auto path = scratch.write("a", bytes.substr(0, n));
    expect_error(Errc::corrupt_data, {}, [&] { SafetensorsFile::open(path); });
  }
}

TEST(Safetensors, NamesAMissingFile) {
  const TemporaryDirectory scratch;
  expect_error(Errc::io, {"nowhere", "No such file"},
               [&] { SafetensorsFile::open(scratch / "nowhere"); });
}

TEST(SafetensorsWriter, RefusesBytesOutOfOrder) {
  const TemporaryDirectory scratch;
  SafetensorsWriter writer(scratch / "a", {{"x", DType::f32, {2}}, {"y", DType::f32, {1}}});
  const std::vector<float> values(3);
  EXPECT_THROW(writer.append_f32("y", std::span(values).first(1)), Error);
  EXPECT_THROW(writer.append_f32("x", values), Error);
  EXPECT_THROW(SafetensorsWriter(scratch / "b", {{"x", DType::f32, {1}}, {"x", DType::f32, {1}}}),
               Error);
  EXPECT_THROW(SafetensorsWriter(scratch / "b", {{"\xff", DType::f32, {1}}}), Error);
}

TEST(SafetensorsWriter, LeavesNothingWhenTheDiskIsFull) {
  const TemporaryDirectory scratch;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  for (const rlim_t room : {rlim_t{0}, rlim_t{100}, rlim_t{1 << 20}}) {
    const rlimit small = {room, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    Errc code = Errc::internal;
    std::string what;
    try {
      SafetensorsWriter writer(scratch / "a", {{"x", DType::f32, {1 << 20}}});
      writer.append_f32("x", std::vector<float>(1 << 20));
      writer.commit();
    } catch (const Error& error) {
      code = error.code();
      what = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_EQ(code, Errc::io);
    EXPECT_NE(what.find("File too large"), std::string::npos) << what;
    EXPECT_EQ(scratch.entries(), 0);
  }
}

}  // namespace
}  // namespace engine::checkpoint
