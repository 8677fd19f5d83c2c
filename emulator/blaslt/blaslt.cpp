// Implements the functions of libcublasLt.so that kernels/cuda/native/blaslt.h lists on the emulated device. A callback
// set with cublasLtLoggerSetCallback is told why a call is refused.
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "emulator/blaslt/multiply.h"
#include "emulator/foreign.h"

namespace qtrain::stand_in {
namespace {

/// The objects that callers have created and not yet destroyed.
template <class T>
class Objects {
 public:
  static Objects& instance() {
    static Objects objects;
    return objects;
  }
  T* add(const T& value) {
    const std::lock_guard lock(mutex_);
    auto object = std::make_unique<T>(value);
    T* address = object.get();
    all_.emplace(address, std::move(object));
    return address;
  }
  T* find(const void* object) {
    const std::lock_guard lock(mutex_);
    const auto it = all_.find(object);
    return it == all_.end() ? nullptr : it->second.get();
  }
  bool remove(const void* object) {
    const std::lock_guard lock(mutex_);
    return all_.erase(object) > 0;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::unique_ptr<T>> all_;
};

struct Handle {};

std::atomic<cublasLtLoggerCallback_t> logger{nullptr};

cublasStatus_t refuse(cublasStatus_t status, const char* call, const std::string& why) {
  constexpr int kErrors = 1;  // the level of the message
  if (const cublasLtLoggerCallback_t log = logger) log(kErrors, call, why.c_str());
  return status;
}

template <class T, class Opaque>
cublasStatus_t create(Opaque* to, const T& value) {
  *to = reinterpret_cast<Opaque>(Objects<T>::instance().add(value));
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(void* object, const char* call) {
  if (Objects<T>::instance().remove(object)) return CUBLAS_STATUS_SUCCESS;
  return refuse(CUBLAS_STATUS_INVALID_VALUE, call, "there is no such object");
}

/// Copies the value of an attribute if it has the attribute's size.
template <class T>
cublasStatus_t assign(T& to, const void* from, std::size_t bytes, const char* call) {
  if (!from || bytes != sizeof to) return refuse(CUBLAS_STATUS_INVALID_VALUE, call, "the value has another size");
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

struct Descriptors {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c, d;

  std::optional<Problem> problem() const {
    const auto* o = Objects<Matmul>::instance().find(operation);
    const auto layout = [](cublasLtMatrixLayout_t l) { return Objects<Layout>::instance().find(l); };
    const Layout *la = layout(a), *lb = layout(b), *lc = layout(c), *ld = layout(d);
    if (!o || !la || !lb || !lc || !ld) return {};
    return Problem{*o, *la, *lb, *lc, *ld};
  }
};

/// Bytes from the first to the last element.
std::size_t extent(const Layout& l) {
  return ((l.columns - 1) * static_cast<std::size_t>(l.leading) + l.rows) * l.element();
}

/// Why the pointers of a call do not fit; empty if they do.
std::string refusal_of(const Problem& p, const Operands& x, const Algorithm& algorithm) {
  if (!x.a || !x.b || !x.d || (x.beta != 0 && !x.c)) return "an operand is null";
  if (x.beta != 0 && x.beta != 1) return "this beta is not implemented here";
  if (p.operation.adds_bias() && !p.operation.bias) return "the bias is null";
  if (x.c && x.c != x.d && overlaps(emulation::reads(x.c, extent(p.c)), x.d, extent(p.d))) return "C and D overlap";
  if (x.c == x.d && !(p.c == p.d)) return "C is D, but has another layout";
  const void* operands[] = {x.a, x.b, x.c, x.d, p.operation.adds_bias() ? p.operation.bias : nullptr};
  const char* names[] = {"A", "B", "C", "D", "the bias"};
  for (int i = 0; i < 5; ++i)
    if (alignment_of(operands[i]) < algorithm.alignment(i))
      return std::string(names[i]) + " has a smaller alignment than the algorithm was chosen for";
  return "";
}

}  // namespace
}  // namespace qtrain::stand_in

using namespace qtrain::stand_in;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return create(handle, Handle{});
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy<Handle>(handle, "cublasLtDestroy");
}
cublasStatus_t cublasLtLoggerSetCallback(cublasLtLoggerCallback_t callback) {
  logger = callback;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  return create(desc, Matmul{.compute = compute, .scale = scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroy<Matmul>(desc, "cublasLtMatmulDescDestroy");
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  constexpr const char* kCall = "cublasLtMatmulDescSetAttribute";
  Matmul* o = Objects<Matmul>::instance().find(desc);
  if (!o) return refuse(CUBLAS_STATUS_INVALID_VALUE, kCall, "there is no such object");
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return assign(o->transpose_a, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_TRANSB: return assign(o->transpose_b, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(o->epilogue, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(o->bias, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return assign(o->bias_type, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return assign(o->fast_sums, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return assign(o->a_scale, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return assign(o->b_scale, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return assign(o->a_scale_mode, value, bytes, kCall);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return assign(o->b_scale_mode, value, bytes, kCall);
    default: return refuse(CUBLAS_STATUS_NOT_SUPPORTED, kCall, "this attribute is not implemented here");
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  return create(layout, Layout{type, rows, columns, leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout, "cublasLtMatrixLayoutDestroy");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference, "cublasLtMatmulPreferenceDestroy");
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  constexpr const char* kCall = "cublasLtMatmulPreferenceSetAttribute";
  Preference* p = Objects<Preference>::instance().find(preference);
  if (!p) return refuse(CUBLAS_STATUS_INVALID_VALUE, kCall, "there is no such object");
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return assign(p->workspace, value, bytes, kCall);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return assign(p->reductions, value, bytes, kCall);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return assign(p->alignment[0], value, bytes, kCall);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return assign(p->alignment[1], value, bytes, kCall);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return assign(p->alignment[2], value, bytes, kCall);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return assign(p->alignment[3], value, bytes, kCall);
    default: return refuse(CUBLAS_STATUS_NOT_SUPPORTED, kCall, "this attribute is not implemented here");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  constexpr const char* kCall = "cublasLtMatmulAlgoGetHeuristic";
  const auto problem = Descriptors{operation, a, b, c, d}.problem();
  const Preference* p = Objects<Preference>::instance().find(preference);
  if (!Objects<Handle>::instance().find(handle) || !problem || !p || wanted < 1 || !results || !found)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, kCall, "an argument is missing");
  if (const std::string why = problem->refusal(); !why.empty()) return refuse(CUBLAS_STATUS_INVALID_VALUE, kCall, why);
  *found = 0;
  for (std::uint64_t kind = 0; kind <= static_cast<std::uint64_t>(Algorithm::Kind::last) && *found < wanted; ++kind) {
    const Algorithm algorithm(static_cast<Algorithm::Kind>(kind), *problem, *p);
    if (!algorithm.refusal(*problem).empty() || !algorithm.is_allowed_by(*p)) continue;
    results[(*found)++] = {.algo = algorithm.stored(),
                           .workspaceSize = algorithm.workspace(),
                           .state = CUBLAS_STATUS_SUCCESS,
                           .wavesCount = 1,
                           .reserved = {}};
  }
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const auto problem = Descriptors{operation, a, b, c, d}.problem();
  if (!Objects<Handle>::instance().find(handle) || !problem || !algo || !result)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmulAlgoCheck", "an argument is missing");
  const Algorithm algorithm(*algo);
  if (!problem->refusal().empty() || !algorithm.refusal(*problem).empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
  *result = {.algo = *algo,
             .workspaceSize = algorithm.workspace(),
             .state = CUBLAS_STATUS_SUCCESS,
             .wavesCount = 1,
             .reserved = {}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  constexpr const char* kCall = "cublasLtMatmul";
  const auto invalid = [](const std::string& why) { return refuse(CUBLAS_STATUS_INVALID_VALUE, kCall, why); };
  if (!Objects<Handle>::instance().find(handle))
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, kCall, "there is no handle");
  const auto problem = Descriptors{operation, a_layout, b_layout, c_layout, d_layout}.problem();
  if (!problem || !alpha || !beta || !algo) return invalid("an argument is missing");
  if (const std::string why = problem->refusal(); !why.empty()) return invalid(why);
  const Algorithm algorithm(*algo);
  if (const std::string why = algorithm.refusal(*problem); !why.empty()) return invalid(why);
  if (workspace_bytes < algorithm.workspace()) return invalid("the workspace is smaller than the algorithm needs");
  if (workspace_bytes > 0 && alignment_of(workspace) < 256) return invalid("the workspace is not aligned to 256 bytes");
  const Operands operands{a, b, c, d, *static_cast<const float*>(alpha), *static_cast<const float*>(beta)};
  if (const std::string why = refusal_of(*problem, operands, algorithm); !why.empty()) return invalid(why);
  std::vector<qtrain::emulation::Touch> touches = touches_of(*problem, operands);
  if (algorithm.workspace() > 0) touches.push_back(qtrain::emulation::writes(workspace, algorithm.workspace()));
  qtrain_emulated_enqueue(stream, {.run = [problem = *problem, operands] { multiply(problem, operands); },
                                   .name = "cublasLtMatmul",
                                   .inputs = qtrain::emulation::bytes_of(*problem, operands, *algo),
                                   .touches = std::move(touches)});
  return CUBLAS_STATUS_SUCCESS;
}
