#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <memory>
#include <utility>

#include "core/device/backend.h"
#include "core/gpu_architectures.h"

namespace qtrain::cuda {
namespace {

constexpr int kNeedsDriver = 12000;  // CUDA 12; the runtime checks whether it is enough for the build's toolkit

[[noreturn]] void refuse(cudaError_t code, const char* what) {
  cudaGetLastError();
  if (code == cudaErrorMemoryAllocation)
    fail(ErrorKind::memory, {.cause = std::string(what) + ": no memory is left on the device",
                             .remedy = "set use_cuda_graphs to false, or lower per_device_train_batch_size"});
  fail(ErrorKind::internal,
       {.cause = std::string(what) + ": " + cudaGetErrorName(code) + ", " + cudaGetErrorString(code)});
}
void verify(cudaError_t code, const char* what) {
  if (code != cudaSuccess) refuse(code, what);
}
cudaStream_t stream_of(void* s) {
  return static_cast<cudaStream_t>(s);
}
cudaEvent_t event_of(void* e) {
  return static_cast<cudaEvent_t>(e);
}
int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  verify(cudaDeviceGetAttribute(&value, which, index), "cudaDeviceGetAttribute");
  return value;
}
std::string version(int v) {
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}
ComputeCapability capability(int index) {
  return {attribute(cudaDevAttrComputeCapabilityMajor, index), attribute(cudaDevAttrComputeCapabilityMinor, index)};
}

}  // namespace

std::string problem() {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "no NVIDIA driver is installed";
  if (driver < kNeedsDriver)
    return "the NVIDIA driver supports CUDA " + version(driver) + ", but " + version(kNeedsDriver) + " is needed";
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) return "no CUDA device is visible";
  if (code == cudaErrorInsufficientDriver)
    return "the NVIDIA driver (CUDA " + version(driver) + ") is older than this build needs (CUDA " +
           version(CUDART_VERSION) + ")";
  if (code != cudaSuccess) return std::string("CUDA failed to start: ") + cudaGetErrorString(code);
  return architecture_problem(QTRAIN_CUDA_ARCHITECTURES, capability(0));
}

const bool kEmulated = false;

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

DeviceInfo info(int index) {
  if (index < 0 || index >= device_count())
    fail(ErrorKind::usage, {.cause = "there is no CUDA device " + std::to_string(index)});
  cudaDeviceProp p{};
  verify(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties");
  DeviceInfo d{.name = p.name,
               .major = p.major,
               .minor = p.minor,
               .multiprocessors = p.multiProcessorCount,
               .shared_bytes = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index))};
  verify(cudaSetDevice(index), "cudaSetDevice");
  verify(cudaMemGetInfo(&d.free_bytes, &d.total_bytes), "cudaMemGetInfo");
  verify(cudaDriverGetVersion(&d.driver), "cudaDriverGetVersion");
  verify(cudaRuntimeGetVersion(&d.runtime), "cudaRuntimeGetVersion");
  return d;
}

void select(int index) {
  verify(cudaSetDevice(index), "cudaSetDevice");
}

void* allocate(int index, std::size_t bytes) {
  select(index);
  void* p = nullptr;
  const cudaError_t code = cudaMalloc(&p, bytes);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  verify(code, "cudaMalloc");
  return p;
}
void release(int, void* p) {
  cudaFree(p);
}
void* allocate_pinned(std::size_t bytes) {
  void* p = nullptr;
  return cudaMallocHost(&p, bytes) == cudaSuccess ? p : nullptr;
}
void release_pinned(void* p) {
  cudaFreeHost(p);
}

void* create_stream(int index) {
  if (const std::string why = problem(); !why.empty())
    fail(ErrorKind::usage, {.cause = why, .remedy = "use --device cpu"});
  select(index);
  cudaStream_t s = nullptr;
  verify(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "cudaStreamCreate");
  return s;
}
void destroy_stream(void* stream) {
  cudaStreamSynchronize(stream_of(stream));
  cudaStreamDestroy(stream_of(stream));
}
void synchronize(void* stream) {
  verify(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

void synchronize_device(int index) {
  select(index);
  verify(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

void copy(void* stream, Span to, const void* from) {
  verify(cudaMemcpyAsync(to.data, from, to.bytes, cudaMemcpyDefault, stream_of(stream)), "cudaMemcpyAsync");
}
void fill(void* stream, Span to, std::uint8_t value) {
  verify(cudaMemsetAsync(to.data, value, to.bytes, stream_of(stream)), "cudaMemsetAsync");
}

void call(void* stream, std::function<void()> act) {
  auto kept = std::make_unique<std::function<void()>>(std::move(act));
  const auto run = [](void* given) {
    const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(given));
    (*own)();
  };
  verify(cudaLaunchHostFunc(stream_of(stream), run, kept.get()), "cudaLaunchHostFunc");
  kept.release();  // NOLINT(bugprone-unused-return-value): the call owns it
}

void* create_event(int index) {
  select(index);
  cudaEvent_t e = nullptr;
  verify(cudaEventCreate(&e), "cudaEventCreate");
  return e;
}
void destroy_event(void* event) {
  cudaEventDestroy(event_of(event));
}
void record(void* event, void* stream) {
  verify(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
}
void wait(void* stream, void* event) {
  verify(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "cudaStreamWaitEvent");
}
bool event_done(void* event) {
  const cudaError_t code = cudaEventQuery(event_of(event));
  if (code == cudaErrorNotReady) return false;
  verify(code, "cudaEventQuery");
  return true;
}
bool event_passed(void* event) {
  return event_done(event);
}
void synchronize_event(void* event) {
  verify(cudaEventSynchronize(event_of(event)), "cudaEventSynchronize");
}
double milliseconds(void* from, void* to) {
  float ms = 0;
  verify(cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "cudaEventElapsedTime");
  return ms;
}

void push_range(const char* name) noexcept {
  nvtxRangePushA(name);
}
void pop_range() noexcept {
  nvtxRangePop();
}

// Thread-local capture: an allocation or a wait by this thread fails the recording, while other threads are unaffected.
void begin_record(void* stream) {
  verify(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}
void* end_record(void* stream) {
  cudaGraph_t recorded = nullptr;
  verify(cudaStreamEndCapture(stream_of(stream), &recorded), "cudaStreamEndCapture");
  std::size_t nodes = 0;
  cudaGraphExec_t graph = nullptr;
  cudaError_t code = cudaGraphGetNodes(recorded, nullptr, &nodes);
  if (code == cudaSuccess && nodes > 0) code = cudaGraphInstantiate(&graph, recorded, 0);
  cudaGraphDestroy(recorded);
  verify(code, "cudaGraphInstantiate");
  return graph;
}
bool is_recorded(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  verify(cudaStreamIsCapturing(stream_of(stream), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}
void drop_record(void* stream) noexcept {
  cudaGraph_t recorded = nullptr;
  if (cudaStreamEndCapture(stream_of(stream), &recorded) == cudaSuccess && recorded) cudaGraphDestroy(recorded);
  cudaGetLastError();
}
void replay(void* graph, void* stream) {
  verify(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream)), "cudaGraphLaunch");
}
void destroy_graph(void* graph) noexcept {
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}
bool compares_graphs() {
  return false;
}
void require_same_graph(void*, void*) {}

std::size_t guard_bytes() {
  return 0;
}
void fence(Span) {}
void open(Span) {}
void forget(void*, Span) {}

}  // namespace qtrain::cuda
