// Several processes write one file, which has the same bytes as if one had written it.
#include <gtest/gtest.h>

#include <numeric>

#include "core/formats/safetensors.h"
#include "core/os/file.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

/// The elements [begin, end) of a tensor of consecutive numbers.
TensorSource numbers(const std::string& name, std::int64_t n, std::int64_t begin, std::int64_t end) {
  return {.name = name,
          .dtype = DType::f32,
          .shape = {n},
          .produce =
              [begin, end](const auto& append) {
                std::vector<float> values(static_cast<std::size_t>(end - begin));
                std::iota(values.begin(), values.end(), static_cast<float>(begin));
                const auto half = values.size() / 2;
                append(std::as_bytes(std::span(values).first(half)));
                append(std::as_bytes(std::span(values).subspan(half)));
              },
          .part = TensorSource::Part{.begin = begin, .count = end - begin}};
}

TEST(SafetensorsWriters, SeveralGiveTheBytesOfOne) {
  const testing::TempFolder folder;
  write_safetensors(folder / "one", {numbers("b", 1000, 0, 1000), numbers("a", 7, 0, 7)});
  write_safetensors(folder / "all", {numbers("b", 1000, 0, 400), numbers("a", 7, 0, 0)}, Writers::first);
  write_safetensors(folder / "all", {numbers("b", 1000, 900, 1000), numbers("a", 7, 0, 7)}, Writers::other);
  write_safetensors(folder / "all", {numbers("b", 1000, 400, 900), numbers("a", 7, 7, 7)}, Writers::other);
  EXPECT_EQ(read_text(folder / "all"), read_text(folder / "one"));
}

TEST(SafetensorsWriters, AFileOfOneHasNoParts) {
  const testing::TempFolder folder;
  EXPECT_THROW(write_safetensors(folder / "one", {numbers("a", 7, 0, 6)}), Error);
}

TEST(SafetensorsWriters, TheOthersNeedTheFile) {
  const testing::TempFolder folder;
  EXPECT_THROW(write_safetensors(folder / "none", {numbers("a", 7, 0, 7)}, Writers::other), Error);
}

}  // namespace
}  // namespace qtrain
