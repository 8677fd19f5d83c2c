#pragma once
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "core/context.h"
#include "emulator/ptx/compiled.h"
#include "emulator/ptx/machine.h"
#include "tests/emulator/planted.h"

namespace qtrain::testing {

/// A kernel with one parameter, whose address is in %x1.
inline std::string kernel_of(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 memory[];\n"
         ".visible .entry kernel(\n\t.param .u64 kernel_param_0\n)\n.maxntid 256, 1, 1\n{\n"
         ".local .align 4 .b8 depot[8];\n"
         ".reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .f64 %d<9>;\n.reg .b64 %x<9>;\n"
         "ld.param.u64 %x1, [kernel_param_0];\n" +
         body + "\nret;\n}\n.file 1 \"kernels/made_up.cu\"\n";
}

/// What blocks of such a kernel leave in an array of `count` words.
inline std::vector<std::uint32_t> words_of(const std::string& body, std::size_t count,
                                           const emulation::Extents& extents) {
  Ctx ctx({DeviceKind::cuda, 0}, MatmulPrecision::storage, 1);
  const Floats out(ctx, std::vector<float>(count));
  ctx.synchronize();
  const emulation::ptx::Program program = emulation::ptx::parse(kernel_of(body), "kernel.ptx");
  emulation::ptx::Call call{.function = &program.functions.at("kernel"), .parameters = std::vector<std::byte>(8)};
  const float* data = out.data();
  std::memcpy(call.parameters.data(), &data, sizeof data);
  emulation::ptx::run_grid(call, "kernel", extents);
  std::vector<std::uint32_t> words;
  for (const float value : out.values()) words.push_back(std::bit_cast<std::uint32_t>(value));
  return words;
}
inline std::vector<std::uint32_t> words_of(const std::string& body, std::size_t count, unsigned threads = 1) {
  return words_of(body, count, {.blocks = {}, .threads = {threads, 1, 1}, .shared_bytes = 64});
}

}  // namespace qtrain::testing
