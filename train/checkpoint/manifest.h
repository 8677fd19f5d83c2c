#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qtrain {

/// What seals a checkpoint, or the final model in an output directory: size and SHA-256 of each of its files, and of
/// itself.
inline constexpr const char* kManifest = "manifest.json";

/// Writes `folder`/manifest.json about the files that are there: the last one to be written.
void write_manifest(const std::filesystem::path& folder, std::int64_t step, int world_size = 1);

enum class ManifestCheck : std::uint8_t {
  sizes,                  ///< the manifest itself, and that its files have their sizes
  hashes,                 ///< contents too, which reads every byte
  hashes_unless_stopped,  ///< the same before anything is done: a stop ends it (ErrorKind::stopped)
};

/// What may lie in a folder beside the files that its manifest names.
enum class Beside : std::uint8_t {
  notes,    ///< in a checkpoint: no .json and no .safetensors; its name, if checkpoint-N, has to be that of its step
  anything  ///< in an output directory
};

/// Returns the step of the manifest. Errors (ErrorKind::input) name the file: no manifest, one that is damaged or of
/// another step than the folder's name says; a file that is missing or not the one that was saved; one that may not lie
/// there.
std::int64_t check_manifest(const std::filesystem::path& folder, ManifestCheck check, Beside beside = Beside::notes);

/// The step of the manifest of `folder`, whatever its files are; none where there is no whole manifest of this program.
std::optional<std::int64_t> manifest_step(const std::filesystem::path& folder);

/// Like check_manifest with ManifestCheck::hashes, for a folder whose files are being moved to another one: each is in
/// one of the two.
std::int64_t check_moving(const std::filesystem::path& from, const std::filesystem::path& to);

/// The names of the files that the manifest of `folder` is about.
std::vector<std::string> sealed_files(const std::filesystem::path& folder);

/// The same with ManifestCheck::hashes about one file, which the manifest has to name.
void check_file(const std::filesystem::path& folder, const std::string& name);

/// The path in full, without "." and without a slash at its end.
std::filesystem::path full_path(const std::filesystem::path& folder);

/// The N of a folder named checkpoint-N; below 0: another name.
std::int64_t step_of_checkpoint(const std::filesystem::path& folder);

}  // namespace qtrain
