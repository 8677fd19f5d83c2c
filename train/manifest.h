#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace qtrain {

/// What seals a checkpoint: size and SHA-256 of each file in its folder, and of itself.
inline constexpr const char* kManifest = "manifest.json";

/// Writes `folder`/manifest.json about the files that are there: the last file of a checkpoint.
void write_manifest(const std::filesystem::path& folder, std::int64_t step);

enum class ManifestCheck : std::uint8_t {
  sizes,   ///< the manifest itself, and that its files have their sizes
  hashes,  ///< contents too, which reads every byte
};

/// Errors (ErrorKind::input) name the file: no manifest, one that is damaged or of another step than the folder's name
/// says; a file that is missing or not the one that was saved; a .json or .safetensors that it does not name.
void check_manifest(const std::filesystem::path& folder, ManifestCheck check);

/// The same with ManifestCheck::hashes about one file, which the manifest has to name.
void check_file(const std::filesystem::path& folder, const std::string& name);

/// The path in full, without "." and without a slash at its end.
std::filesystem::path full_path(const std::filesystem::path& folder);

/// The N of a folder named checkpoint-N; below 0: another name.
std::int64_t step_of_checkpoint(const std::filesystem::path& folder);

}  // namespace qtrain
