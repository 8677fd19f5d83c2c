#include "core/transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace qtrain {
namespace {

using ::testing::ElementsAre;

/// The CPU, and the CUDA device if there is one (or the harness).
std::vector<Device> devices() {
  std::vector<Device> all{{}};
  if (cuda_problem().empty()) all.push_back({.kind = DeviceKind::cuda});
  return all;
}

class Transfer : public ::testing::TestWithParam<Device> {
 protected:
  /// A flat tensor on the device.
  Tensor take(DType dtype, std::int64_t n) {
    memory_.emplace_back(GetParam(), static_cast<std::size_t>(n) * size_of(dtype));
    return {memory_.back().data(), dtype, {n}, GetParam()};
  }
  std::vector<float> contents(Tensor t) {
    std::vector<float> all;
    read_chunks(ctx_, t, [&](ConstTensor chunk) {
      const auto values = chunk.span<float>();
      all.insert(all.end(), values.begin(), values.end());
    });
    return all;
  }

  Ctx ctx_{GetParam(), MatmulPrecision::storage, 1};
  std::vector<DeviceMemory> memory_;
};

TEST_P(Transfer, ChunksArriveInOrder) {
  constexpr std::int64_t kElements = (std::int64_t{5} << 19) + 3;  // more than two chunks, the last one partial
  const Tensor t = take(DType::f32, kElements);
  for (const float offset : {0.5f, 1.5f}) {
    write_chunks(ctx_, t, [&](std::int64_t first, Tensor chunk) {
      const auto values = chunk.span<float>();
      std::iota(values.begin(), values.end(), static_cast<float>(first) + offset);
    });
    const std::vector<float> back = contents(t);
    ASSERT_EQ(back.size(), static_cast<std::size_t>(kElements));
    for (std::size_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], static_cast<float>(i) + offset);
  }
}

TEST_P(Transfer, EmptyTensorsHaveNoElementsToCopy) {
  const Tensor t = take(DType::f32, 0);
  write_chunks(ctx_, t, [](std::int64_t, Tensor chunk) { EXPECT_EQ(chunk.numel(), 0); });
  EXPECT_TRUE(contents(t).empty());
}

TEST_P(Transfer, TransfersDoNotOvertakeEachOther) {
  StagingBuffer staging(GetParam(), 128);
  const Tensor log = take(DType::f32, 7);
  for (std::int64_t i = 0; i < 7; ++i) {
    const float value[] = {static_cast<float>(i)};
    const std::int32_t others[] = {1, 2, 3};
    const ConstTensor ints = staging.put(std::span<const std::int32_t>(others));
    const ConstTensor staged = staging.put(std::span<const float>(value));
    EXPECT_EQ(ints.shape, Shape{3});
    staging.send(ctx_);
    ctx_.stream().copy(log.slice(i, 1).data, staged.data, staged.bytes());
  }
  EXPECT_THAT(contents(log), ElementsAre(0, 1, 2, 3, 4, 5, 6));
}

TEST_P(Transfer, ATransferLargerThanItsBufferIsRefused) {
  StagingBuffer staging(GetParam(), 128);
  const std::vector<float> values(24);
  staging.put(std::span<const float>(values));
  EXPECT_THROW(staging.put(std::span<const float>(values)), Error);
}

TEST_P(Transfer, NumbersStartAtZeroAndAreReadWhenAskedFor) {
  DeviceNumbers numbers(GetParam(), 3);
  numbers.clear(ctx_);
  EXPECT_THAT(numbers.read(ctx_), ElementsAre(0, 0, 0));
  StagingBuffer staging(GetParam(), 64);
  const double value[] = {2.5};
  const ConstTensor staged = staging.put(std::span<const double>(value));
  staging.send(ctx_);
  ctx_.stream().copy(numbers[1].data, staged.data, staged.bytes());
  EXPECT_THAT(numbers.read(ctx_), ElementsAre(0, 2.5, 0));
}

TEST_P(Transfer, AHostCopyCanBeReadAndChanged) {
  HostCopy copy(GetParam());
  for (const std::int64_t n : {3, 100, 2}) {
    const Tensor t = take(DType::f32, n);
    write_chunks(ctx_, t, [&](std::int64_t, Tensor chunk) {
      const auto values = chunk.span<float>();
      std::iota(values.begin(), values.end(), static_cast<float>(n));
    });
    const Tensor here = copy.of(ctx_, t);
    EXPECT_EQ(here.shape, t.shape);
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(here.as<float>()[i]++, static_cast<float>(n + i));
  }
}

INSTANTIATE_TEST_SUITE_P(Device, Transfer, ::testing::ValuesIn(devices()), [](const auto& info) {
  return std::string(info.param.kind == DeviceKind::cuda ? "cuda" : "cpu");
});

}  // namespace
}  // namespace qtrain
