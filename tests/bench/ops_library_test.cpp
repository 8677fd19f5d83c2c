// The C functions of bench/ops_library.h: they use the same table of ops as the cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bench/ops_library.h"

namespace {

using ::testing::HasSubstr;

using Session = std::unique_ptr<void, void (*)(void*)>;
Session on_cpu() {
  return {qtrain_open("cpu"), qtrain_close};
}
QtrainTensor vector_of(std::vector<float>& values) {
  return {.data = values.data(), .dtype = "float32", .dims = {static_cast<std::int64_t>(values.size())}, .rank = 1};
}

TEST(OpsLibrary, CallsAnOpWithTensorsAndNumbers) {
  const Session session = on_cpu();
  std::vector<float> c{1, 1}, a{1, 2, 3, 4}, b{5, 6};  // c += 0.5 A b^T, b one row
  QtrainTensor tensors[] = {vector_of(c), vector_of(a), vector_of(b)};
  tensors[0].dims[1] = 1, tensors[0].rank = 2, tensors[0].adds = 1;
  tensors[1].dims[0] = 2, tensors[1].dims[1] = 2, tensors[1].rank = 2;
  tensors[2].dims[0] = 1, tensors[2].dims[1] = 2, tensors[2].rank = 2;
  const double numbers[] = {0, 1, 0.5};
  const QtrainCall call{.op = "gemm", .tensors = tensors, .numbers = numbers, .tensor_count = 3, .number_count = 3};
  ASSERT_EQ(qtrain_call(session.get(), &call), 0) << qtrain_error();
  EXPECT_THAT(c, ::testing::ElementsAre(1 + 0.5 * 17, 1 + 0.5 * 39));
}

TEST(OpsLibrary, ATensorWithoutDataIsLeftOut) {
  const Session session = on_cpu();
  std::vector<float> c{0}, a{2, 3}, b{5, 7};
  const QtrainTensor none{};
  QtrainTensor tensors[] = {vector_of(c), vector_of(a), vector_of(b), none, none};
  for (int i = 0; i < 3; ++i) tensors[i].rank = 2, tensors[i].dims[1] = tensors[i].dims[0], tensors[i].dims[0] = 1;
  const double numbers[] = {0, 1, 1};
  const QtrainCall call{.op = "gemm", .tensors = tensors, .numbers = numbers, .tensor_count = 5, .number_count = 3};
  ASSERT_EQ(qtrain_call(session.get(), &call), 0) << qtrain_error();
  EXPECT_THAT(c, ::testing::ElementsAre(2 * 5 + 3 * 7));
}

TEST(OpsLibrary, TellsWhyACallFailed) {
  const Session session = on_cpu();
  std::vector<float> y{0};
  QtrainTensor tensor = vector_of(y);
  const QtrainCall unknown{.op = "copie", .tensors = &tensor, .tensor_count = 1};
  EXPECT_EQ(qtrain_call(session.get(), &unknown), 1);
  EXPECT_THAT(qtrain_error(), HasSubstr("copie"));
  tensor.rank = 5;
  const QtrainCall deep{.op = "copy", .tensors = &tensor, .tensor_count = 1};
  EXPECT_EQ(qtrain_call(session.get(), &deep), 1);
  EXPECT_THAT(qtrain_error(), HasSubstr("one to four dimensions"));
  EXPECT_EQ(qtrain_open("tpu"), nullptr);
  EXPECT_THAT(qtrain_error(), HasSubstr("cpu or cuda"));
}

}  // namespace
