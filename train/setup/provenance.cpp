#include "train/setup/provenance.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/formats/safetensors.h"
#include "core/hash.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/sha256.h"
#include "core/version.h"
#include "kernels/processor.h"
#include "model/model_source.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

// Adds the regular files of a folder whose names `wanted` accepts.
template <class Wanted>
void add_files(std::vector<fs::path>& files, const fs::path& folder, const Wanted& wanted) {
  std::error_code error, gone;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, error), end; !error && it != end; it.increment(error))
    if (wanted(it->path().filename().string()) && it->is_regular_file(gone)) files.push_back(it->path());
}

bool is_weights(std::string_view name) {
  return name.ends_with(".safetensors");
}

bool is_of_model(const std::string& name) {
  constexpr std::array kNames{"config.json", "generation_config.json", "adapter_config.json"};
  return is_weights(name) || std::ranges::find(kNames, name) != kNames.end();
}

bool is_of_text(const std::string& name) {
  const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
  return (has("token") || has("chat_template")) && !is_weights(name);
}

void add_text_files(std::vector<fs::path>& files, const fs::path& folder) {
  add_files(files, folder, is_of_text);
  add_files(files, folder / "additional_chat_templates", [](const std::string&) { return true; });
}

std::string name_of_device(Device device) {
  return device.kind == DeviceKind::cpu ? describe_cpu() : cuda_info(device.index).name;
}

}  // namespace

FileHashes hashes_of(const fs::path& file) {
  Hasher content;
  Sha256 sha256;
  for_each_chunk(file, [&](std::span<const std::byte> chunk) {
    throw_if_stopped();
    content.add(chunk);
    sha256.add(chunk);
  });
  return {.content = content.digest().hex(), .sha256 = sha256.hex()};
}

std::string own_program_hash() {
  return sha256_of_file(fs::canonical("/proc/self/exe"));
}

std::vector<fs::path> text_files(const Config& config) {
  std::vector<fs::path> files;
  const fs::path model = model_path(config.model.tokenizer_name_or_path.value_or(config.model.model_name_or_path));
  add_text_files(files, is_folder(model) ? model : model.parent_path());
  if (config.model.chat_template_path) {
    const fs::path chosen = *config.model.chat_template_path;
    std::error_code absent;
    if (fs::is_directory(chosen, absent)) add_text_files(files, chosen);
    if (fs::is_regular_file(chosen, absent)) files.push_back(chosen);  // else the key is a template name or text
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::vector<fs::path> model_files(const ModelSetup& setup) {
  std::vector<fs::path> files;
  add_files(files, setup.source, is_of_model);
  if (setup.adapter) add_files(files, *setup.adapter, is_of_model);
  if (setup.random_init) return files;
  for (const fs::path& shard : safetensors_files(setup.source))  // an index may give the shards other names
    if (!is_weights(shard.filename().string())) files.push_back(shard);
  return files;
}

Json provenance(const ProvenanceOf& of, ThreadPool& pool) {
  std::vector<FileHashes> hashes(of.files.size());
  pool.run(std::ssize(of.files), [&](std::int64_t i, int) {
    hashes[static_cast<std::size_t>(i)] = hashes_of(of.files[static_cast<std::size_t>(i)]);
  });
  std::map<std::string, std::string> content, sha256;
  for (std::size_t i = 0; i < of.files.size(); ++i) {
    content[of.files[i].string()] = hashes[i].content;
    sha256[of.files[i].string()] = hashes[i].sha256;
  }
  return {{"version", std::string(kVersion)},
          {"device", name_of_device(of.device)},
          {"files", content},
          {"files_sha256", sha256}};
}

}  // namespace qtrain
