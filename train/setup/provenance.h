#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/formats/json.h"
#include "core/parallel.h"
#include "train/setup/model_setup.h"

namespace qtrain {

/// The files that determine how a tokenizer and its template turn rows into tokens, sorted. Unlistable folders are
/// skipped: reading them will report the problem.
std::vector<std::filesystem::path> text_files(const Config& config);
/// The files that determine a model and the adapter it starts from.
std::vector<std::filesystem::path> model_files(const ModelSetup& setup);

/// Hashes of a file in a run's provenance: a fast one that checkpoints compare, and the SHA-256.
struct FileHashes {
  std::string content, sha256;
};
/// Throws ErrorKind::input as MappedFile does.
FileHashes hashes_of(const std::filesystem::path& file);

/// SHA-256 of the running program.
std::string own_program_hash();

struct ProvenanceOf {
  Device device;
  const std::vector<std::filesystem::path>& files;
};
/// What a run depends on besides its config: program version, device, and hashes of the input files.
Json provenance(const ProvenanceOf& of, ThreadPool& pool);

}  // namespace qtrain
