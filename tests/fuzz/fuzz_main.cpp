// The entry points for libFuzzer. A single program; its target is what follows the underscore in the name by which it
// is called (build/fuzz/bin/fuzz_gguf).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/os/file.h"
#include "tests/fuzz/targets.h"

namespace {

const qtrain::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char*** argv) {
  const std::string name = std::filesystem::path((*argv)[0]).filename().string();
  for (const auto& target : qtrain::fuzz::targets())
    if (name == "fuzz_" + std::string(target.name)) chosen = &target;
  if (chosen) return 0;
  std::fprintf(stderr, "call this program by the name of a target: fuzz_json, fuzz_gguf, ...\n");
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  qtrain::fuzz::run(*chosen, {reinterpret_cast<const char*>(data), size});
  return 0;
}
