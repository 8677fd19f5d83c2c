// The stand-in for cuBLASLt refuses what the library refuses, and computes the rest.
#include "kernels/cuda/native/blaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <utility>
#include <vector>

#include "core/context.h"
#include "emulator/device.h"

namespace qtrain {
namespace {

constexpr std::uint64_t kRows = 16, kColumns = 8, kDepth = 32;

/// D [16, 8] = A [16, 32] B [32, 8], all ones, and what may be wrong with that.
struct Request {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t a_type = CUDA_R_16BF, b_type = CUDA_R_16BF, d_type = CUDA_R_32F;
  std::int64_t a_leading = kRows;
  std::uint64_t d_rows = kRows, b_rows = kDepth;
  std::uint32_t alignment = 16;  ///< that the caller promises
  std::size_t a_offset = 0, c_offset = 0, d_offset = 0, bias_offset = 0, workspace_offset = 0;
  std::size_t planned_workspace = 4 << 20, workspace = 4 << 20;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  bool bias = false, has_c = true, has_algorithm = true;
  cudaDataType_t bias_type = CUDA_R_32F;
  float beta = 0;
  std::size_t attribute_bytes = sizeof(std::int32_t);
  int candidate = 0;                             ///< which of the suggested algorithms runs
  std::int32_t planned_transpose = CUBLAS_OP_N;  ///< of A, when the algorithm is chosen
};

struct Case {
  const char* name;
  std::function<void(Request&)> change;
  cublasStatus_t expected;

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

class BlasltStandIn : public ::testing::TestWithParam<Case> {
 protected:
  BlasltStandIn() {
    const std::vector<std::uint16_t> ones(kRows * kDepth, 0x3f80);  // 1 in bfloat16
    ctx_.stream().copy(memory_.data() + kA, ones.data(), kRows * kDepth * 2);
    ctx_.stream().copy(memory_.data() + kB, ones.data(), kColumns * kDepth * 2);
    const std::vector<float> halves(kRows, 0.5f);
    ctx_.stream().copy(memory_.data() + kBias, halves.data(), kRows * 4);
  }

  /// The first status that is not success.
  cublasStatus_t run(const Request& r) {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, a_planned = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    library_->desc_create(&operation, r.compute, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value, std::size_t bytes) {
      return library_->desc_set(operation, attribute, &value, bytes);
    };
    const bool turned = r.planned_transpose != CUBLAS_OP_N;
    if (const auto status = set(CUBLASLT_MATMUL_DESC_TRANSA, r.planned_transpose, r.attribute_bytes); status != 0)
      return status;
    if (r.bias) {
      const std::uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const void* at = memory_.data() + kBias;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, sizeof epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, r.bias_type, sizeof r.bias_type);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at, sizeof at);
    }
    library_->layout_create(&a, r.a_type, kRows, kDepth, r.a_leading);
    library_->layout_create(&a_planned, r.a_type, turned ? kDepth : kRows, turned ? kRows : kDepth,
                            turned ? kDepth : r.a_leading);
    library_->layout_create(&b, r.b_type, r.b_rows, kColumns, r.b_rows);
    library_->layout_create(&d, r.d_type, r.d_rows, kColumns, r.d_rows);
    library_->preference_create(&preference);
    library_->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &r.planned_workspace,
                             sizeof(std::uint64_t));
    library_->preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &r.reductions,
                             sizeof r.reductions);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      library_->preference_set(preference, attribute, &r.alignment, sizeof r.alignment);
    std::vector<cublasLtMatmulHeuristicResult_t> results(8);
    const auto status =
        library_->heuristic(library_.handle(), operation, a_planned, b, d, d, preference, 8, results.data(), &found_);
    if (status != 0) return status;
    const std::int32_t straight = CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, straight, sizeof straight);
    const void* bias = memory_.data() + kBias + r.bias_offset;
    if (r.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, sizeof bias);
    const float one = 1;
    const cublasLtMatmulAlgo_t algorithm = results.at(static_cast<std::size_t>(r.candidate)).algo;
    std::byte* to = memory_.data() + kD + r.d_offset;
    return library_->matmul(library_.handle(), operation, &one, memory_.data() + kA + r.a_offset, a,
                            memory_.data() + kB, b, &r.beta, r.has_c ? to + r.c_offset : nullptr, d, to, d,
                            r.has_algorithm ? &algorithm : nullptr, memory_.data() + kWorkspace + r.workspace_offset,
                            r.workspace, static_cast<cudaStream_t>(ctx_.stream().handle()));
  }
  std::vector<float> result() {
    std::vector<float> values(kRows * kColumns);
    ctx_.stream().copy(values.data(), memory_.data() + kD, values.size() * 4);
    ctx_.synchronize();
    return values;
  }

  static constexpr std::size_t kA = 0, kB = 4096, kBias = 8192, kD = 12288, kWorkspace = 16384;
  Ctx ctx_{Device{DeviceKind::cuda, 0}};
  DeviceMemory memory_{ctx_.device(), kWorkspace + (5 << 20), "operands"};
  cuda::Blaslt library_;
  int found_ = 0;
};

TEST_P(BlasltStandIn, AnswersAsTheLibraryDoes) {
  Request request;
  GetParam().change(request);
  EXPECT_EQ(run(request), GetParam().expected);
  ctx_.synchronize();
}

TEST_F(BlasltStandIn, Multiplies) {
  for (int candidate = 0; candidate < 4; ++candidate) {
    ASSERT_EQ(run({.candidate = candidate}), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(found_, 4);
    EXPECT_THAT(result(), ::testing::Each(32.0f));
  }
  ASSERT_EQ(run({.bias = true, .beta = 1}), CUBLAS_STATUS_SUCCESS);
  EXPECT_THAT(result(), ::testing::Each(64.5f));
}

constexpr auto kRefused = CUBLAS_STATUS_INVALID_VALUE;
const Case kCases[] = {
    {"valid", [](Request&) {}, CUBLAS_STATUS_SUCCESS},
    {"half_types", [](Request& r) { r.a_type = CUDA_R_16F; }, kRefused},
    {"narrow_result", [](Request& r) { r.d_type = CUDA_R_16F; }, kRefused},
    {"tf32_of_16_bits", [](Request& r) { r.compute = CUBLAS_COMPUTE_32F_FAST_TF32; }, kRefused},
    {"compute_in_f16", [](Request& r) { r.compute = CUBLAS_COMPUTE_16F; }, kRefused},
    {"overlapping_columns", [](Request& r) { r.a_leading = kRows - 1; }, kRefused},
    {"other_rows", [](Request& r) { r.d_rows = kRows + 1; }, kRefused},
    {"other_depth", [](Request& r) { r.b_rows = kDepth - 1; }, kRefused},
    {"bias_of_another_type", [](Request& r) { r.bias = true, r.bias_type = CUDA_R_16BF; }, kRefused},
    {"attribute_of_another_size", [](Request& r) { r.attribute_bytes = 8; }, kRefused},
    {"no_algorithm", [](Request& r) { r.has_algorithm = false; }, kRefused},
    {"algorithm_for_another_transpose", [](Request& r) { r.planned_transpose = CUBLAS_OP_T; }, kRefused},
    {"no_c_to_add_to", [](Request& r) { r.beta = 1, r.has_c = false; }, kRefused},
    {"c_over_a_part_of_d", [](Request& r) { r.c_offset = 64; }, kRefused},
    {"operand_off_its_alignment", [](Request& r) { r.a_offset = 8; }, kRefused},
    {"result_off_its_alignment", [](Request& r) { r.d_offset = 4; }, kRefused},
    {"bias_off_its_alignment", [](Request& r) { r.bias = true, r.bias_offset = 4; }, kRefused},
    {"workspace_off_its_alignment", [](Request& r) { r.workspace_offset = 16; }, kRefused},
    {"small_workspace", [](Request& r) { r.candidate = 1, r.workspace = 1 << 10; }, kRefused},
    {"bias_on_single_elements", [](Request& r) { r.bias = true, r.alignment = 2; }, CUBLAS_STATUS_NOT_SUPPORTED}};
INSTANTIATE_TEST_SUITE_P(All, BlasltStandIn, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Without workspace there is no algorithm that splits the inner dimension, and with a mask only the allowed ones.
TEST_F(BlasltStandIn, SuggestsWhatThePreferenceAllows) {
  ASSERT_EQ(run({.planned_workspace = 0}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(found_, 2);
  ASSERT_EQ(run({.reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(found_, 3);
  ASSERT_EQ(run({.alignment = 2}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(found_, 1);
}

/// D [16, 4] = A^T [16, 256] B [256, 4] in FP8, all ones, with a scale per block.
struct BlockRequest {
  std::int32_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  std::uint64_t columns = 4;
  std::size_t scale_offset = 0;
  cudaDataType_t type = CUDA_R_8F_E4M3;
  int capability = 90;
};

class BlasltBlocks : public ::testing::TestWithParam<std::pair<const char*, std::pair<BlockRequest, cublasStatus_t>>> {
 protected:
  static constexpr std::uint64_t kOut = 16, kIn = 256;

  cublasStatus_t run(const BlockRequest& r) {
    const int before = std::exchange(emulation::settings().capability, r.capability);
    const std::size_t bytes = r.type == CUDA_R_8F_E4M3 ? 1 : 2;
    const std::vector<std::uint8_t> ones(kOut * kIn * bytes, 0x38);  // 1 in E4M3
    ctx_.stream().copy(memory_.data(), ones.data(), ones.size());
    ctx_.stream().copy(memory_.data() + kB, ones.data(), r.columns * kIn * bytes);
    cublasLtMatmulDesc_t operation = nullptr;
    library_->desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      library_->desc_set(operation, attribute, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_T});
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, r.a_mode);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, r.b_mode);
    const void *of_a = memory_.data() + kScales, *of_b = memory_.data() + kScales + 256 + r.scale_offset;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, of_a);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, of_b);
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    library_->layout_create(&a, r.type, kIn, kOut, kIn);
    library_->layout_create(&b, r.type, kIn, r.columns, kIn);
    library_->layout_create(&d, CUDA_R_32F, kOut, r.columns, kOut);
    cublasLtMatmulPreference_t preference = nullptr;
    library_->preference_create(&preference);
    const std::uint32_t alignment = 16;
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      library_->preference_set(preference, attribute, &alignment, sizeof alignment);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    auto status = library_->heuristic(library_.handle(), operation, a, b, d, d, preference, 1, &result, &found);
    const float one = 1, zero = 0;
    if (status == 0)
      status = library_->matmul(library_.handle(), operation, &one, memory_.data(), a, memory_.data() + kB, b, &zero,
                                nullptr, d, memory_.data() + kD, d, &result.algo, memory_.data() + kWorkspace, 0,
                                static_cast<cudaStream_t>(ctx_.stream().handle()));
    emulation::settings().capability = before;
    return status;
  }
  void set_scales(std::size_t offset, const std::vector<float>& values) {
    ctx_.stream().copy(memory_.data() + kScales + offset, values.data(), values.size() * sizeof(float));
  }

  static constexpr std::size_t kB = 4096, kScales = 8192, kD = 12288, kWorkspace = 16384;
  Ctx ctx_{Device{DeviceKind::cuda, 0}};
  DeviceMemory memory_{ctx_.device(), kWorkspace + 4096, "operands"};
  cuda::Blaslt library_;
};

TEST_P(BlasltBlocks, AreAcceptedAsInTheDocumentation) {
  set_scales(0, std::vector<float>(128, 1));
  EXPECT_EQ(run(GetParam().second.first), GetParam().second.second);
  ctx_.synchronize();
}

// Scales for squares of A are neighbors along the inner dimension; those for vectors of B, along its columns.
TEST_F(BlasltBlocks, HaveTheScalesOfTheirPlace) {
  set_scales(0, {2, 3, 0, 0});
  set_scales(256, {1, 10, 100, 1000, 5, 6, 7, 8});
  ASSERT_EQ(run({}), CUBLAS_STATUS_SUCCESS);
  std::vector<float> values(kOut * 4);
  ctx_.stream().copy(values.data(), memory_.data() + kD, values.size() * 4);
  ctx_.synchronize();
  const float first[] = {1, 10, 100, 1000}, second[] = {5, 6, 7, 8};
  for (std::size_t j = 0; j < 4; ++j)
    for (std::size_t i = 0; i < kOut; ++i)
      EXPECT_EQ(values[j * kOut + i], 128 * (2 * first[j] + 3 * second[j])) << i << ", " << j;
}

constexpr auto kVector = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F, kSquare = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
INSTANTIATE_TEST_SUITE_P(
    All, BlasltBlocks,
    ::testing::Values(std::pair("square_vector", std::pair(BlockRequest{}, CUBLAS_STATUS_SUCCESS)),
                      std::pair("vectors", std::pair(BlockRequest{.a_mode = kVector}, CUBLAS_STATUS_SUCCESS)),
                      std::pair("vector_square",
                                std::pair(BlockRequest{.a_mode = kVector, .b_mode = kSquare}, CUBLAS_STATUS_SUCCESS)),
                      std::pair("squares", std::pair(BlockRequest{.b_mode = kSquare}, kRefused)),
                      std::pair("one_matrix",
                                std::pair(BlockRequest{.b_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F}, kRefused)),
                      std::pair("odd_columns", std::pair(BlockRequest{.columns = 3}, kRefused)),
                      std::pair("scales_off_their_alignment", std::pair(BlockRequest{.scale_offset = 8}, kRefused)),
                      std::pair("16_bits", std::pair(BlockRequest{.type = CUDA_R_16BF}, kRefused)),
                      std::pair("ada", std::pair(BlockRequest{.capability = 89}, kRefused)),
                      std::pair("blackwell", std::pair(BlockRequest{.capability = 100}, kRefused))),
    [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace qtrain
