#include "core/formats/gguf.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <limits>

#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;
using ::testing::HasSubstr;

/// Appends the fields of a GGUF file one by one.
class Writer {
 public:
  template <class T>
  Writer& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Writer& u32(std::uint32_t v) { return put(v); }
  Writer& u64(std::uint64_t v) { return put(v); }
  Writer& text(std::string_view s) {
    u64(s.size());
    bytes_.append(s);
    return *this;
  }
  Writer& head(std::uint64_t tensors, std::uint64_t values) { return u32(0x46554747).u32(3).u64(tensors).u64(values); }
  Writer& info(std::string_view name, std::vector<std::uint64_t> dims, std::uint32_t type, std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(dims.size()));
    for (const auto d : dims) u64(d);
    return u32(type).u64(offset);
  }
  Writer& pad(std::size_t unit = 32) {
    bytes_.append((unit - bytes_.size() % unit) % unit, '\0');
    return *this;
  }
  Writer& data(std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) bytes_ += static_cast<char>(i);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

GgufFile read(const std::string& bytes) {
  TempFolder folder;
  std::ofstream(folder / "x.gguf", std::ios::binary) << bytes;
  return GgufFile(folder / "x.gguf");
}

Writer good() {
  Writer w;
  w.head(2, 3).text("a").u32(4).u32(7).text("general.alignment").u32(4).u32(64);
  w.text("list").u32(9).u32(8).u64(2).text("x").text("y");
  w.info("t", {4, 2}, 0, 0).info("q", {32}, 8, 64).pad(64).data(32).pad(64).data(34);
  return w;
}

TEST(Gguf, ReadsValuesAndTensors) {
  const auto file = read(good().bytes());
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.integer("a"), 7);
  EXPECT_EQ(file.integer_or("none", 5), 5);
  EXPECT_EQ(file.array("list").size(), 2u);
  EXPECT_EQ(file.tensor("t").shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(file.tensor("t").data.size(), 32u);
  EXPECT_EQ(file.tensor("q").data.size(), 34u);
  EXPECT_EQ(std::to_integer<int>(file.tensor("q").data[33]), 33);
}

TEST(Gguf, EveryValueTypeArrives) {
  Writer w;
  w.head(0, 13);
  w.text("u8").u32(0).put<std::uint8_t>(255).text("i8").u32(1).put<std::int8_t>(-128);
  w.text("u16").u32(2).put<std::uint16_t>(65535).text("i16").u32(3).put<std::int16_t>(-32768);
  w.text("u32").u32(4).u32(~0u).text("i32").u32(5).put<std::int32_t>(-5).text("f32").u32(6).put(1e-5f);
  w.text("bool").u32(7).put<std::uint8_t>(1).text("str").u32(8).text("h\u00e9");
  w.text("arr").u32(9).u32(9).u64(2).u32(0).u64(1).put<std::uint8_t>(3).u32(5).u64(0);
  w.text("u64").u32(10).u64(~0ull).text("i64").u32(11).put<std::int64_t>(-1).text("f64").u32(12).put(0.25);
  const auto file = read(w.bytes());
  std::string all;
  for (const auto& [key, value] : file.values()) all += key + "=" + dump_json(value) + " ";
  EXPECT_EQ(all,
            "arr=[[3], []] bool=true f32=1e-05 f64=0.25 i16=-32768 i32=-5 i64=-1 i8=-128 str=\"h\u00e9\" u16=65535 "
            "u32=4294967295 u64=18446744073709551615 u8=255 ");
}

TEST(Gguf, TypedAccessNamesTheKey) {
  const auto file = read(good().bytes());
  EXPECT_THAT(error_of([&] { file.text("a"); }).what(), HasSubstr("\"a\" is not a string"));
  EXPECT_THAT(error_of([&] { file.integer("list"); }).what(), HasSubstr("\"list\" is not"));
  EXPECT_THAT(error_of([&] { file.array("b"); }).what(), HasSubstr("no metadata \"b\""));
  EXPECT_THAT(error_of([&] { file.tensor("b"); }).what(), HasSubstr("no tensor \"b\""));
}

struct BadGguf {
  const char* cause;
  Writer file;
};

std::vector<BadGguf> bad_files() {
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  return {
      {"ends within the magic number", Writer()},
      {"does not begin with GGUF", Writer().u32(0x46474747).u32(3).u64(0).u64(0)},
      {"version 1", Writer().u32(0x46554747).u32(1).u64(0).u64(0)},
      {"big-endian", Writer().u32(0x46554747).u32(0x03000000).u64(0).u64(0)},
      {"ends within the tensor count", Writer().u32(0x46554747).u32(3)},
      {"count of 18446744073709551615 metadata", Writer().head(0, kMax)},
      {"count of 18446744073709551615 tensors", Writer().head(kMax, 0)},
      {"count of 1000 tensors", Writer().head(1000, 0).data(100)},
      {"a metadata key", Writer().head(0, 1).u64(kMax).data(40)},
      {"value type 13", Writer().head(0, 1).text("k").u32(13).data(40)},
      {"array elements", Writer().head(0, 1).text("k").u32(9).u32(10).u64(1ull << 61).data(40)},
      {"array elements", Writer().head(0, 1).text("k").u32(9).u32(8).u64(6).data(40)},
      {"value type 99", Writer().head(0, 1).text("k").u32(9).u32(99).u64(0).data(40)},
      {"nested deeper",
       [] {
         Writer w;
         w.head(0, 1).text("k").u32(9);
         for (int i = 0; i < 100; ++i) w.u32(9).u64(1);
         return w;
       }()},
      {"UTF-8", Writer().head(0, 1).text("\xff").u32(4).u32(1).data(20)},
      {"UTF-8", Writer().head(0, 1).text("k").u32(8).text("\xed\xa0\x80").data(20)},
      {"given twice", Writer().head(0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(1)},
      {"5 dimensions", Writer().head(1, 0).info("t", {1, 1, 1, 1, 1}, 0, 0).pad().data(4)},
      {"0 dimensions", Writer().head(1, 0).info("t", {}, 0, 0).pad().data(40)},
      {"overflows", Writer().head(1, 0).info("t", {1ull << 32, 1ull << 32}, 0, 0).pad().data(4)},
      {"overflows", Writer().head(1, 0).info("t", {1ull << 62}, 0, 0).pad().data(4)},
      {"overflows", Writer().head(1, 0).info("t", {kMax}, 0, 0).pad().data(4)},
      {"type 77", Writer().head(1, 0).info("t", {1}, 77, 0).pad().data(4)},
      {"whole blocks", Writer().head(1, 0).info("t", {33}, 8, 0).pad().data(64)},
      {"not aligned", Writer().head(1, 0).info("t", {1}, 0, 4).pad().data(64)},
      {"beyond the end", Writer().head(1, 0).info("t", {17}, 0, 0).pad().data(64)},
      {"beyond the end", Writer().head(1, 0).info("t", {1}, 0, 1ull << 63).pad().data(64)},
      {"beyond the end", Writer().head(1, 0).info("t", {9}, 0, 0)},
      {"overlap", Writer().head(2, 0).info("a", {16}, 0, 0).info("b", {8}, 0, 32).pad().data(64)},
      {"twice", Writer().head(2, 0).info("a", {8}, 0, 0).info("a", {8}, 0, 32).pad().data(64)},
      {"general.alignment 0", Writer().head(0, 1).text("general.alignment").u32(4).u32(0)},
      {"general.alignment 48", Writer().head(0, 1).text("general.alignment").u32(4).u32(48)},
      {"general.alignment", Writer().head(0, 1).text("general.alignment").u32(8).text("32")},
  };
}

TEST(Gguf, HostileFilesAreRefused) {
  for (const auto& bad : bad_files()) {
    const auto error = error_of([&] { read(bad.file.bytes()); });
    EXPECT_EQ(error.kind(), ErrorKind::input) << bad.cause;
    EXPECT_THAT(error.what(), HasSubstr(bad.cause));
  }
}

TEST(Gguf, NoTruncationOrFlippedBitCrashes) {
  const auto bytes = good().bytes();
  TempFolder folder;
  const auto read_again = [&](std::string_view contents) {
    std::filesystem::remove(folder / "x.gguf");  // file systems flush files that are truncated and rewritten
    std::ofstream(folder / "x.gguf", std::ios::binary) << contents;
    GgufFile{folder / "x.gguf"};
  };
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_EQ(error_of([&] { read_again(bytes.substr(0, size)); }).kind(), ErrorKind::input) << size;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 5) {
    auto flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    try {
      read_again(flipped);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
    }
  }
}

}  // namespace
}  // namespace qtrain
