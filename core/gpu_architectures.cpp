#include "core/gpu_architectures.h"

#include <charconv>

namespace qtrain {
namespace {

constexpr ComputeCapability kOldest{7, 5};

/// Whether one architecture, such as "90a-real", runs on the GPU.
bool one_runs_on(std::string_view architecture, ComputeCapability gpu) {
  int number = 0;
  const char* end = architecture.data() + architecture.size();
  const auto [rest, error] = std::from_chars(architecture.data(), end, number);
  if (error != std::errc{}) return true;  // a word such as "native", which only the build can interpret
  const std::string_view suffix(rest, static_cast<std::size_t>(end - rest));
  const ComputeCapability code{number / 10, number % 10};
  if (suffix.starts_with('a')) return code.major == gpu.major && code.minor == gpu.minor;
  const bool machine_code = !suffix.ends_with("-virtual"), ptx = !suffix.ends_with("-real");
  const bool same_major = code.major == gpu.major && code.minor <= gpu.minor;
  return (machine_code && same_major) || (ptx && (same_major || code.major < gpu.major));
}

}  // namespace

bool runs_on(std::string_view architectures, ComputeCapability gpu) {
  while (!architectures.empty()) {
    const std::size_t end = architectures.find(' ');
    if (one_runs_on(architectures.substr(0, end), gpu)) return true;
    architectures.remove_prefix(end == architectures.npos ? architectures.size() : end + 1);
  }
  return false;
}

std::string architecture_problem(std::string_view architectures, ComputeCapability gpu) {
  const auto text = [](ComputeCapability c) { return std::to_string(c.major) + "." + std::to_string(c.minor); };
  const bool too_old = gpu.major < kOldest.major || (gpu.major == kOldest.major && gpu.minor < kOldest.minor);
  if (too_old)
    return "the GPU has compute capability " + text(gpu) + ", but " + text(kOldest) + " (Turing) or newer is needed";
  if (runs_on(architectures, gpu)) return {};
  return "this build has no kernels for compute capability " + text(gpu) + " (QTRAIN_CUDA_ARCHS is " +
         std::string(architectures) + ")";
}

}  // namespace qtrain
