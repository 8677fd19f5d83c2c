// Tensors whose last elements have indices beyond 2^31, and on a GPU beyond 2^32, which do not fit in 32 bits.
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "tests/cuda/schedules.h"

namespace qtrain::testing {
namespace {

/// The device of the harness has 8 GiB.
std::int64_t beyond() {
  return std::int64_t{1} << (cuda_info().emulated ? 31 : 32);
}

class CudaLarge : public ::testing::Test {
 protected:
  /// Returns false if the device does not have enough memory.
  bool allocate(const Shape& shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(DType::bf16);
    constexpr std::size_t kOthers = std::size_t{512} << 20;
    if (cuda_info().free_bytes < bytes + kOthers) return false;
    memory_ = DeviceMemory(kCuda, bytes, "a large tensor");
    large_ = {memory_.data(), DType::bf16, shape, kCuda};
    return true;
  }
  Tensor row(std::int64_t i) const {
    Tensor t = large_;
    t.data += static_cast<std::size_t>(i * large_.shape[1]) * size_of(t.dtype);
    t.shape = {1, large_.shape[1]};
    return t;
  }
  Array read(std::int64_t i) {
    Array values(DType::bf16, {1, large_.shape[1]});
    ops::copy(ctx_, {.y = store(values), .x = row(i)});
    return values;
  }
  void write(std::int64_t i, Array values) { ops::copy(ctx_, {.y = store(row(i)), .x = values}); }

  const OnDevice device_;
  Ctx ctx_{kCuda, MatmulPrecision::storage, 1};
  DeviceMemory memory_;
  Tensor large_;
};

// Only the listed rows are touched.
TEST_F(CudaLarge, EmbeddingFindsRows) {
  constexpr std::int64_t kWidth = 1000;
  const std::int64_t rows = beyond() / kWidth + 3;
  if (!allocate({rows, kWidth})) GTEST_SKIP() << "the device has no memory for " << rows << " rows";
  const Array first = random(DType::bf16, {1, kWidth}, 1), last = random(DType::bf16, {1, kWidth}, 2);
  write(0, first);
  write(rows - 1, last);
  Array tokens = integers({static_cast<std::int32_t>(rows - 1), 0}), y(DType::bf16, {2, kWidth});
  ops::embedding(ctx_, {.y = y, .table = large_, .tokens = tokens});
  Array dy = random(DType::bf16, {2, kWidth}, 3);
  ops::embedding_grad(ctx_, {.dtable = accumulate(large_), .dy = dy, .tokens = tokens});
  const Array first_sum = read(0), last_sum = read(rows - 1);
  for (std::int64_t c = 0; c < kWidth; ++c) {
    ASSERT_EQ(y.get(c), last.get(c)) << c;
    ASSERT_EQ(y.get(kWidth + c), first.get(c)) << c;
    const auto rounded = [](double x) { return static_cast<float>(Bf16(static_cast<float>(x))); };
    ASSERT_EQ(last_sum.get(c), rounded(last.get(c) + dy.get(c))) << c;
    ASSERT_EQ(first_sum.get(c), rounded(first.get(c) + dy.get(kWidth + c))) << c;
  }
}

// Equal logits: the loss is log V, the gradient scale / V and scale / V - scale. Rows without a class are not read;
// their gradient is zeroed, which takes too long under the harness.
TEST_F(CudaLarge, CrossEntropyFindsRows) {
  constexpr std::int64_t kClasses = std::int64_t{1} << 20, kClass = 77;
  const std::int64_t rows = beyond() / kClasses + 1;
  if (!allocate({rows, kClasses})) GTEST_SKIP() << "the device has no memory for " << rows << " rows";
  const bool emulated = cuda_info().emulated;
  write(rows - 1, Array(DType::bf16, {1, kClasses}).as(DType::bf16));
  std::vector<std::int32_t> classes(static_cast<std::size_t>(rows), ops::kNoClass);
  classes.back() = kClass;
  Array targets = integers(classes), loss(DType::f32, {rows}), scale = scalars({1024});
  ops::cross_entropy(ctx_, {.logits = large_,
                            .loss = loss,
                            .targets = targets,
                            .gradient = emulated ? ops::Gradient::none : ops::Gradient::in_place,
                            .scale = scale});
  EXPECT_NEAR(loss.get(rows - 1), std::log(static_cast<double>(kClasses)), 1e-4);
  EXPECT_EQ(loss.get(0), 0);
  if (emulated) return;
  const Array gradient = read(rows - 1);
  EXPECT_EQ(gradient.get(kClass), -1024);
  EXPECT_NEAR(gradient.get(kClasses - 1), 0x1p-10, 0x1p-17);
  EXPECT_EQ(read(0).get(kClasses - 1), 0);
}

}  // namespace
}  // namespace qtrain::testing
