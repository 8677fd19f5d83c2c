#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qtrain {

/// Seals a checkpoint, or the final model in an output directory: size and SHA-256 of each file, and of the manifest
/// itself.
inline constexpr const char* kManifest = "manifest.json";

/// Writes `folder`/manifest.json for the files in it; call it last.
void write_manifest(const std::filesystem::path& folder, std::int64_t step, int world_size = 1);

enum class ManifestCheck : std::uint8_t {
  sizes,                  ///< the manifest itself, and the sizes of its files
  hashes,                 ///< file contents too, which reads every byte
  hashes_unless_stopped,  ///< likewise, for use before anything has started: a stop request ends it
                          ///< (ErrorKind::stopped)
};

/// What a folder may contain besides the files in its manifest.
enum class Beside : std::uint8_t {
  notes,    ///< checkpoint: no other .json or .safetensors; a name of the form checkpoint-N must match its step
  anything  ///< output directory
};

/// Returns the step in the manifest. Throws ErrorKind::input, naming the file: the manifest is missing, damaged or of
/// another step than the folder's name says; a file is missing or does not match; or a file should not be there.
std::int64_t check_manifest(const std::filesystem::path& folder, ManifestCheck check, Beside beside = Beside::notes);

/// The step in the manifest of `folder`, whatever the state of its files; none without a valid manifest of this
/// program.
std::optional<std::int64_t> manifest_step(const std::filesystem::path& folder);

/// Like check_manifest with ManifestCheck::hashes, for a folder whose files are being moved: each file is in one of the
/// two folders.
std::int64_t check_moving(const std::filesystem::path& from, const std::filesystem::path& to);

/// The names of the files in the manifest of `folder`.
std::vector<std::string> sealed_files(const std::filesystem::path& folder);

/// Whether a run or another program would read a file of this name in a checkpoint as part of it. Other files are
/// notes.
bool is_read_as_part(const std::filesystem::path& file);

/// Checks the hash of one file, which the manifest must contain.
void check_file(const std::filesystem::path& folder, const std::string& name);

/// The absolute path, without "." and without a trailing slash.
std::filesystem::path full_path(const std::filesystem::path& folder);

/// The N of a folder named checkpoint-N, or -1 for other names.
std::int64_t step_of_checkpoint(const std::filesystem::path& folder);

}  // namespace qtrain
