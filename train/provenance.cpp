#include "train/provenance.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/file.h"
#include "core/hash.h"
#include "kernels/processor.h"
#include "train/version.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

bool decides_results(const fs::path& file) {
  constexpr std::array kNames{"config.json",     "adapter_config.json",   "tokenizer.json",
                              "tokenizer.model", "tokenizer_config.json", "chat_template.jinja"};
  return file.extension() == ".safetensors" || std::ranges::find(kNames, file.filename()) != kNames.end();
}

std::string hash_of_file(const fs::path& file) {
  Hasher hasher;
  for_each_piece(file, [&](std::span<const std::byte> piece) { hasher.add(piece); });
  return hasher.digest().hex();
}

std::string name_of_device(Device device) {
  return device.kind == DeviceKind::cpu ? describe_cpu() : cuda_info(device.index).name;
}

}  // namespace

Json provenance(Device device, const std::vector<fs::path>& folders) {
  std::map<std::string, std::string> hashes;
  std::error_code no_folder;
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder, no_folder))
      if (decides_results(entry.path()) && entry.is_regular_file())
        hashes[entry.path().string()] = hash_of_file(entry.path());
  return {{"version", std::string(kVersion)}, {"device", name_of_device(device)}, {"files", hashes}};
}

}  // namespace qtrain
