#include "kernels/cpu/isa.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"

namespace qtrain {
namespace {

std::string all_names() {
  std::string names = kCpuIsas[0];
  for (std::size_t i = 1; i < kCpuIsas.size(); ++i)
    names += (i + 1 < kCpuIsas.size() ? ", " : " or ") + std::string(kCpuIsas[i]);
  return names;
}

}  // namespace

CpuIsa cpu_isa() {
  // Asked only once: in a virtual machine, CPUID traps to the host, which takes tens of microseconds.
  static const FoundIsa found = find_isa();
  const char* text = std::getenv("QTRAIN_CPU_ISA");
  if (!text || !*text) return found.fastest;
  const auto it = std::find(kCpuIsas.begin(), kCpuIsas.end(), std::string_view(text));
  if (it == kCpuIsas.end())
    fail(ErrorKind::usage,
         {.cause = "QTRAIN_CPU_ISA is '" + std::string(text) + "'", .remedy = "use " + all_names() + ", or unset it"});
  return std::min(found.best, static_cast<CpuIsa>(it - kCpuIsas.begin()));
}

bool has_bf16_matmul() {
  return static_cast<std::size_t>(cpu_isa()) + 1 == kCpuIsas.size();
}

std::string describe_cpu() {
  return processor_name() + ", " + kCpuIsas[static_cast<std::size_t>(cpu_isa())];
}

}  // namespace qtrain
