#include "kernels/cpu/isa.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "core/error.h"

namespace qtrain {
namespace {

constexpr std::array<std::string_view, 3> kNames{"avx2", "avx512", "avx512_bf16"};

CpuIsa detected() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    fail(ErrorKind::usage, {.cause = "this processor has no AVX2 and FMA units, which the CPU kernels need",
                            .remedy = "run on an x86-64 processor made since 2013 (Haswell, Zen or later)"});
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (!wide) return CpuIsa::avx2;
  return __builtin_cpu_supports("avx512bf16") ? CpuIsa::avx512_bf16 : CpuIsa::avx512;
}

CpuIsa fastest() {
  const CpuIsa best = detected();
  return best == CpuIsa::avx512_bf16 && !__builtin_cpu_is("amd") ? CpuIsa::avx512 : best;
}

std::string model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(':');
      if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
    }
  return "x86-64 processor";
}

}  // namespace

CpuIsa cpu_isa() {
  const char* text = std::getenv("QTRAIN_CPU_ISA");
  if (!text || !*text) return fastest();
  const auto it = std::find(kNames.begin(), kNames.end(), std::string_view(text));
  if (it == kNames.end())
    fail(ErrorKind::usage, {.cause = "QTRAIN_CPU_ISA is '" + std::string(text) + "'",
                            .remedy = "use avx2, avx512 or avx512_bf16, or unset it"});
  return std::min(detected(), static_cast<CpuIsa>(it - kNames.begin()));
}

bool has_bf16_matmul() {
  return cpu_isa() == CpuIsa::avx512_bf16;
}

std::string describe_cpu() {
  return model_name() + ", " + std::string(kNames[static_cast<std::size_t>(cpu_isa())]);
}

}  // namespace qtrain
