#include "core/formats/gguf_write.h"

#include <gmock/gmock.h>

#include <numeric>

#include "core/half.h"
#include "tests/core/temp_folder.h"

namespace qtrain {
namespace {

using qtrain::testing::error_of;
using qtrain::testing::TempFolder;

/// A tensor with the values first, first + 1, ..., passed on in chunks of seven bytes.
template <class T>
GgufTensorSource counting(const std::string& name, GgufType type, std::vector<std::int64_t> shape, float first) {
  GgufTensorSource source{.name = name, .type = type, .shape = std::move(shape)};
  std::vector<T> values;
  const auto count = std::accumulate(source.shape.begin(), source.shape.end(), std::int64_t{1}, std::multiplies{});
  for (std::int64_t i = 0; i < count; ++i) values.push_back(T(first + static_cast<float>(i)));
  source.produce = [values](const auto& append) {
    const auto bytes = std::as_bytes(std::span(values));
    for (std::size_t at = 0; at < bytes.size(); at += 7)
      append(bytes.subspan(at, std::min<std::size_t>(7, bytes.size() - at)));
  };
  return source;
}

TEST(GgufWrite, WritesTheBytesOfTheReference) {
  GgufMetadata metadata;
  metadata.put_text("general.architecture", "llama");
  metadata.put_text("text", "a n\u00e4me\n");
  metadata.put_integer("integer", 4'000'000'000);
  metadata.put_number("number", 1e-5F);
  metadata.put_flag("yes", true);
  metadata.put_flag("no", false);
  metadata.put_texts("texts", std::vector<std::string>{"", "b", "\u0120\u010a"});
  metadata.put_integers("integers", std::vector<std::int32_t>{1, -2, 3});
  metadata.put_numbers("numbers", std::vector<float>{0.5F, -1.5F});
  const std::vector<GgufTensorSource> tensors{counting<float>("a.matrix", GgufType::f32, {2, 3}, -3),
                                              counting<F16>("a.vector", GgufType::f16, {5}, 0),
                                              counting<float>("a.cube", GgufType::f32, {2, 3, 4}, 0)};
  TempFolder folder;
  write_gguf({folder / "written.gguf"}, metadata, tensors);
  EXPECT_EQ(read_text(folder / "written.gguf"), read_text(QTRAIN_SOURCE_DIR "/tests/core/goldens/written.gguf"));
  EXPECT_EQ(GgufFile(folder / "written.gguf").tensor("a.cube").shape, (std::vector<std::int64_t>{2, 3, 4}));
}

TEST(GgufWrite, MistakesOfTheCallerLeaveNoFile) {
  GgufMetadata metadata;
  metadata.put_flag("key", true);
  EXPECT_EQ(error_of([&] { metadata.put_integer("key", 1); }).kind(), ErrorKind::internal);
  TempFolder folder;
  for (const auto& [shape, type] :
       {std::pair{std::vector<std::int64_t>{2, 3}, GgufType::f16}, {{2, 3}, GgufType::q8_0}, {{}, GgufType::f32}}) {
    auto tensor = counting<float>("x", GgufType::f32, {2, 3}, 0);
    tensor.shape = shape;
    tensor.type = type;
    EXPECT_EQ(error_of([&] { write_gguf({folder / "x.gguf"}, {}, std::vector{tensor}); }).kind(), ErrorKind::internal);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace qtrain
