#include "emulator/blaslt/problem.h"

#include <algorithm>
#include <bit>

#include "emulator/foreign.h"

namespace qtrain::stand_in {
namespace {

constexpr std::uint64_t kMadeHere = 0x626c61736c740000;  // "blaslt"
constexpr std::size_t kVectorBytes = 16, kSplitWorkspace = std::size_t{1} << 20;

std::string refusal_of(const char* name, const Layout& l) {
  if (l.type != CUDA_R_16BF && l.type != CUDA_R_16F && l.type != CUDA_R_32F && !l.is_fp8())
    return std::string(name) + " has a type without GEMMs";
  if (l.rows == 0 || l.columns == 0) return std::string(name) + " is empty";
  if (l.leading < static_cast<std::int64_t>(l.rows)) return std::string(name) + " has overlapping columns";
  return "";
}

// The rows of the documentation's table for real types with f32 accumulation.
std::string type_refusal(const Problem& p) {
  const Matmul& o = p.operation;
  if (o.scale != CUDA_R_32F) return "the scale type is not f32";
  const cudaDataType_t operands = p.a.type, result = p.d.type;
  if (p.b.type != operands) return "A and B have different types";
  if (p.c.type != result) return "C and D have different types";
  if (operands == CUDA_R_32F && result != CUDA_R_32F) return "the result of f32 operands is not f32";
  if (operands != CUDA_R_32F && result != CUDA_R_32F && result != operands)
    return "D has neither the type of A and B nor f32";
  if (o.compute == CUBLAS_COMPUTE_32F_FAST_TF32) return operands == CUDA_R_32F ? "" : "TF32 is for f32 operands";
  return o.compute == CUBLAS_COMPUTE_32F ? "" : "the compute type is neither f32 nor TF32";
}

// What the documentation requires of scales for blocks, which GPUs of compute capability 9.0 have.
std::string block_refusal(const Problem& p) {
  constexpr std::uint64_t kMultiple = 4;
  constexpr std::uintptr_t kAlignment = 16;
  const Matmul& o = p.operation;
  const auto is_block = [](std::int32_t mode) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  };
  if (!is_block(o.a_scale_mode) || !is_block(o.b_scale_mode))
    return "this combination of scale modes is not implemented here";
  if (o.a_scale_mode == o.b_scale_mode && o.a_scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
    return "A and B both have a scale for 128 x 128 elements";
  if (qtrain_emulated_capability() / 10 != 9) return "this GPU has no scales for blocks in FP8";
  if (p.d.rows % kMultiple != 0 || p.d.columns % kMultiple != 0)
    return "blocks need an M and N that are multiples of 4";
  for (const void* scale : {o.a_scale, o.b_scale})
    if (reinterpret_cast<std::uintptr_t>(scale) % kAlignment != 0)
      return "scales of blocks are not aligned to 16 bytes";
  return "";
}

// The table of types for FP8, and what the documentation requires on GPUs before sm_100.
std::string fp8_refusal(const Problem& p) {
  constexpr std::uint64_t kMultiple = 16;
  const Matmul& o = p.operation;
  if (!p.a.is_fp8() || !p.b.is_fp8()) return "only one of A and B is FP8";
  if (p.a.type == CUDA_R_8F_E5M2 && p.b.type == CUDA_R_8F_E5M2) return "A and B are both E5M2";
  if (p.d.is_fp8()) return "a result in FP8 is not implemented here";
  if (p.c.type != p.d.type) return "C and D have different types";
  if (o.scale != CUDA_R_32F || o.compute != CUBLAS_COMPUTE_32F) return "FP8 needs sums in f32";
  if (!p.transposes_a() || p.transposes_b()) return "FP8 needs A transposed and B not";
  if (!o.a_scale || !o.b_scale) return "FP8 without scales is not implemented here";
  if (o.adds_bias()) return "a bias with FP8 is not implemented here";
  for (const auto n :
       {p.a.rows, p.a.columns, static_cast<std::uint64_t>(p.a.leading), static_cast<std::uint64_t>(p.b.leading)})
    if (n % kMultiple != 0) return "FP8 needs sizes that are multiples of 16";
  if (static_cast<std::uint64_t>(p.d.leading) * p.d.element() % kMultiple != 0)
    return "FP8 needs columns of D that are multiples of 16 bytes";
  return o.has_blocks() ? block_refusal(p) : "";
}

std::uint64_t rounded_up(std::uint64_t n, std::uint64_t to) {
  return (n + to - 1) / to * to;
}

bool is_multiple(const Layout& l, std::size_t bytes) {
  return static_cast<std::size_t>(l.leading) * l.element() % bytes == 0;
}

}  // namespace

std::uint64_t alignment_of(const void* p) {
  constexpr std::uintptr_t kMax = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(p) | kMax;
  return std::uint64_t{1} << std::countr_zero(address);
}

std::uint64_t Scales::count() const {
  constexpr std::uint64_t kStride = 4;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return across() * outer;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
    return rounded_up(across(), kStride) * (rounded_up(outer, kBlock) / kBlock);
  return 1;
}

std::uint64_t Scales::at(std::uint64_t outer_index, std::uint64_t inner_index) const {
  constexpr std::uint64_t kStride = 4;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return inner_index / kBlock * outer + outer_index;
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
    return outer_index / kBlock * rounded_up(across(), kStride) + inner_index / kBlock;
  return 0;
}

std::string Problem::refusal() const {
  const std::pair<const char*, const Layout*> all[] = {{"A", &a}, {"B", &b}, {"C", &c}, {"D", &d}};
  for (const auto& [name, layout] : all)
    if (std::string why = refusal_of(name, *layout); !why.empty()) return why;
  const bool fp8 = a.is_fp8() || b.is_fp8();
  if (std::string why = fp8 ? fp8_refusal(*this) : type_refusal(*this); !why.empty()) return why;
  if (!fp8 && operation.fast_sums != 0) return "fast sums need FP8";
  if (!fp8 && operation.has_blocks()) return "scales need FP8";
  if ((transposes_b() ? b.columns : b.rows) != k()) return "the inner dimensions of A and B differ";
  if ((transposes_a() ? a.columns : a.rows) != d.rows) return "D does not have the rows of op(A)";
  if ((transposes_b() ? b.rows : b.columns) != d.columns) return "D does not have the columns of op(B)";
  if (c.rows != d.rows || c.columns != d.columns) return "C and D have different shapes";
  if (!operation.adds_bias() && operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    return "this epilogue is not implemented here";
  if (operation.adds_bias() && operation.bias_type >= 0 && operation.bias_type != d.type)
    return "the bias does not have the type of D";
  return "";
}

Algorithm::Algorithm(Kind kind, const Problem& problem, const Preference& preference) {
  words_[0] = kMadeHere | static_cast<std::uint64_t>(kind);
  for (int i = 0; i < 4; ++i) words_[1] |= std::uint64_t{preference.alignment[i]} << (10 * i);
  if (problem.operation.adds_bias()) words_[1] |= alignment_of(problem.operation.bias) << 40;
  words_[2] = signature(problem);
}

Algorithm::Algorithm(const cublasLtMatmulAlgo_t& stored) {
  std::copy(std::begin(stored.data), std::end(stored.data), words_);
}

cublasLtMatmulAlgo_t Algorithm::stored() const {
  cublasLtMatmulAlgo_t stored{};
  std::copy(std::begin(words_), std::end(words_), stored.data);
  return stored;
}

std::uint64_t Algorithm::signature(const Problem& p) {
  const Matmul& o = p.operation;
  std::uint64_t s = 0;
  for (const auto part :
       {std::uint64_t{p.a.type}, std::uint64_t{p.b.type}, std::uint64_t{p.d.type},
        static_cast<std::uint64_t>(o.compute), std::uint64_t{p.transposes_a()}, std::uint64_t{p.transposes_b()},
        std::uint64_t{o.adds_bias()} | static_cast<std::uint64_t>(o.a_scale_mode) << 1 |
            static_cast<std::uint64_t>(o.b_scale_mode) << 4})
    s = s << 8 | part;
  return s;
}

std::string Algorithm::refusal(const Problem& p) const {
  if ((words_[0] & ~std::uint64_t{255}) != kMadeHere || kind() > Kind::last)
    return "the algorithm is not from this library";
  if (words_[2] != signature(p)) return "the algorithm is for other types, transposes or another epilogue";
  const bool vectors = kind() != Kind::elements;
  for (int i = 0; vectors && i < 4; ++i)
    if (alignment(i) < kVectorBytes) return "the algorithm loads vectors, but an operand is not aligned to them";
  if (vectors && !(is_multiple(p.a, kVectorBytes) && is_multiple(p.b, kVectorBytes) && is_multiple(p.d, kVectorBytes)))
    return "the algorithm loads vectors, but columns are not aligned to them";
  // The choice of this library: its simplest algorithm writes pairs of 16-bit elements if it adds a bias.
  if (!vectors && p.operation.adds_bias() && alignment(3) < 4) return "no algorithm adds a bias to such a result";
  return "";
}

bool Algorithm::is_allowed_by(const Preference& preference) const {
  if (workspace() > preference.workspace) return false;
  if (!is_split()) return true;
  const auto scheme =
      kind() == Kind::split_in_f32 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  return (preference.reductions & scheme) != 0;
}

std::size_t Algorithm::workspace() const {
  return is_split() ? kSplitWorkspace : 0;
}

}  // namespace qtrain::stand_in
