#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/formats/json.h"
#include "core/parallel.h"
#include "train/setup/model_setup.h"

namespace qtrain {

/// The files that decide what a tokenizer and its template make of a row, sorted. Those that cannot be listed are left
/// out: reading them says what is wrong.
std::vector<std::filesystem::path> text_files(const Config& config);
/// Those that decide what a model and the adapter it starts from are.
std::vector<std::filesystem::path> model_files(const ModelSetup& setup);

/// The hashes of a file in a run's provenance: one that checkpoints compare, which is quick, and the SHA-256.
struct FileHashes {
  std::string content, sha256;
};
/// Errors (ErrorKind::input): as MappedFile.
FileHashes hashes_of(const std::filesystem::path& file);

/// The SHA-256 of the program that is running.
std::string own_program_hash();

struct ProvenanceOf {
  Device device;
  const std::vector<std::filesystem::path>& files;
};
/// What a run depends on beside its config: version of the program, device, and hashes of files (equal hashes: equal
/// contents).
Json provenance(const ProvenanceOf& of, ThreadPool& pool);

}  // namespace qtrain
