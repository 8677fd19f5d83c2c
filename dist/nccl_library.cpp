#include "dist/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/os/shared_library.h"

namespace qtrain {
namespace {

constexpr const char* kFile = "libnccl.so.2";
constexpr int kOldest = nccl::version_code(2, 18, 0);  // the version for CUDA 12

std::string version_text(int code) {
  const int major = code < 10000 ? 1000 : 10000;  // up to 2.8, the number had one digit fewer
  return fmt::format("{}.{}.{}", code / major, code % major / 100, code % 100);
}

[[noreturn]] void refuse(std::string cause) {
  fail(ErrorKind::usage, {.cause = std::move(cause),
                          .remedy = fmt::format("install NCCL {} or newer (the Python package nvidia-nccl-cu13 next to "
                                                "this program or in the active environment, or a "
                                                "folder on LD_LIBRARY_PATH), or train on one GPU (nproc=1)",
                                                version_text(kOldest))});
}

SharedLibrary open_nccl() {
  SharedLibrary library = open_shared_library(kFile);
  if (!library.handle) refuse("several GPUs need NCCL, which cannot be loaded: " + library.problem);
  return library;
}

template <class F>
void load(const SharedLibrary& library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library.handle, name));
  if (!function) refuse(fmt::format("{} has no function {}: it is too old, or not NCCL", library.file, name));
}

int version_of(const SharedLibrary& library) {
  nccl::Functions f{};
  load(library, "ncclGetVersion", f.get_version);
  int code = 0;
  f.get_version(&code);
  return code;
}

void require_version(const SharedLibrary& library, int code) {
  if (code < kOldest)
    refuse(fmt::format("NCCL {} ({}) is too old: {} or newer is needed", version_text(code), library.file,
                       version_text(kOldest)));
}

}  // namespace

NcclLibrary::NcclLibrary() {
  const SharedLibrary library = open_nccl();
  version_ = version_of(library);
  require_version(library, version_);
  nccl::Functions& f = functions_;
  load(library, "ncclGetVersion", f.get_version);
  load(library, "ncclGetUniqueId", f.get_unique_id);
  load(library, "ncclCommInitRankConfig", f.comm_init_rank_config);
  load(library, "ncclCommGetAsyncError", f.comm_get_async_error);
  load(library, "ncclCommFinalize", f.comm_finalize);
  load(library, "ncclCommDestroy", f.comm_destroy);
  load(library, "ncclCommAbort", f.comm_abort);
  load(library, "ncclGetErrorString", f.get_error_string);
  load(library, "ncclGetLastError", f.get_last_error);
  load(library, "ncclAllReduce", f.all_reduce);
  load(library, "ncclReduceScatter", f.reduce_scatter);
  load(library, "ncclBroadcast", f.broadcast);
  load(library, "ncclAllGather", f.all_gather);
  load(library, "ncclSend", f.send);
  load(library, "ncclRecv", f.recv);
  load(library, "ncclGroupStart", f.group_start);
  load(library, "ncclGroupEnd", f.group_end);
}

NcclState nccl_state() try {
  const SharedLibrary library = open_nccl();
  const int code = version_of(library);
  NcclState state{.version = version_text(code), .file = library.file};
  try {
    require_version(library, code);
  } catch (const Error& e) {
    state.problem = e.text().cause;
  }
  return state;
} catch (const Error& e) {
  return {.version = "", .file = "", .problem = e.text().cause};
}

}  // namespace qtrain
