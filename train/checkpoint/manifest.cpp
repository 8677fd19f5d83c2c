#include "train/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "core/formats/json.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/os/stop.h"
#include "core/sha256.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;

// Hash of the manifest as `json.dumps` writes it without its member "sha256".
std::string own_hash(Json manifest) {
  manifest.erase("sha256");
  return sha256_of(dump_json(manifest));
}

// Whether this is the name that a manifest of this program would have for a file in its folder. The system would ignore
// what follows a zero byte.
bool is_inside(const fs::path& name) {
  const bool is_plain = !name.empty() && name.native() == name.lexically_normal().native();
  return is_plain && name.is_relative() && *name.begin() != ".." && name.native().find('\0') == std::string::npos;
}

[[noreturn]] void fail_damaged(const fs::path& place, std::string cause) {
  fail(ErrorKind::input, {.cause = std::move(cause), .place = place.string()});
}

void require_inside(const fs::path& name, const fs::path& folder) {
  if (!is_inside(name))
    fail_damaged(folder / kManifest, fmt::format("it lists \"{}\", which is not a file in this folder", name.string()));
}

Json read_manifest(const fs::path& folder) {
  const fs::path file = folder / kManifest;
  std::error_code ignored;
  if (!fs::exists(file, ignored))
    fail_damaged(folder, fmt::format("has no {}: it was not saved completely", kManifest));
  Json manifest = read_json(file);
  const auto is = [&](const char* key, auto type) { return manifest.contains(key) && (manifest[key].*type)(); };
  if (!manifest.is_object() || !is("sha256", &Json::is_string) || !is("files", &Json::is_object) ||
      !is("step", &Json::is_number_integer) || manifest["sha256"] != own_hash(manifest))
    fail_damaged(file, "is damaged: its SHA-256 does not match the recorded one");
  if (manifest.value("format_version", Json()) != kFormatVersion)
    fail_damaged(file, "has an unsupported format version");
  return manifest;
}

// All files except the manifest, by the names that the manifest uses.
std::map<std::string, fs::path> files_within(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  std::error_code ignored;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied, ignored))
    if (entry.is_symlink() || !entry.is_directory())
      files[entry.path().lexically_relative(folder).string()] = entry.path();
  files.erase(kManifest);
  return files;
}

void compare(const fs::path& file, const Json& saved, ManifestCheck check) {
  const bool is_listed = saved.is_object() && saved.value("size", Json()).is_number_unsigned();
  if (!is_listed) fail_damaged(file, "is not listed in the manifest with a size and hash");
  std::error_code missing;
  const std::uint64_t size = fs::file_size(file, missing);
  if (missing) fail_damaged(file, "is missing");
  if (const Json expected = saved["size"]; expected != size)
    fail_damaged(file, fmt::format("has {} bytes, but {} were saved", size, expected.dump()));
  if (check == ManifestCheck::sizes) return;
  const auto between = [check] {
    if (check == ManifestCheck::hashes_unless_stopped) throw_if_stopped();
  };
  if (saved.value("sha256", Json()) != sha256_of_file(file, between))
    fail_damaged(file, "is damaged: its SHA-256 does not match the recorded one");
}

}  // namespace

fs::path full_path(const fs::path& folder) {
  const fs::path path = (fs::current_path() / folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

bool is_read_as_part(const fs::path& file) {
  return file.extension() == ".safetensors" || file.extension() == ".json";
}

std::int64_t step_of_checkpoint(const fs::path& folder) {
  const std::string name = full_path(folder).filename().string();
  constexpr std::string_view kPrefix = "checkpoint-";
  if (!name.starts_with(kPrefix)) return -1;
  std::int64_t step = 0;
  const char *begin = name.data() + kPrefix.size(), *end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  return error == std::errc() && stop == end && begin != end ? step : -1;
}

void write_manifest(const fs::path& folder, std::int64_t step, int world_size) {
  // Keys in sorted order.
  Json manifest{{"files", Json::object()},
                {"format_version", kFormatVersion},
                {"sha256", ""},
                {"step", step},
                {"world_size", world_size}};
  for (const auto& [name, file] : files_within(folder))
    manifest["files"][name] = {{"sha256", sha256_of_file(file)}, {"size", fs::file_size(file)}};
  manifest["sha256"] = own_hash(manifest);
  write_file(folder / kManifest, dump_json(manifest, 2) + "\n");
}

std::int64_t check_manifest(const fs::path& folder, ManifestCheck check, Beside beside) {
  const Json manifest = read_manifest(folder);
  const bool checkpoint = beside == Beside::notes;
  if (const std::int64_t step = step_of_checkpoint(folder); checkpoint && step >= 0 && manifest["step"] != step)
    fail_damaged(folder, fmt::format("its manifest is of step {}", manifest["step"].dump()));
  const Json& files = manifest["files"];
  for (const auto& [name, saved] : files.items()) {
    require_inside(name, folder);
    compare(folder / name, saved, check);
  }
  if (checkpoint)
    for (const auto& [name, file] : files_within(folder))
      if (is_read_as_part(file) && !files.contains(name)) fail_damaged(file, "is not one of the saved files");
  return manifest["step"];
}

std::optional<std::int64_t> manifest_step(const fs::path& folder) {
  try {
    return read_manifest(folder)["step"].get<std::int64_t>();
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    return {};
  }
}

std::int64_t check_moving(const fs::path& from, const fs::path& to) {
  const Json manifest = read_manifest(from);
  for (const auto& [name, saved] : manifest["files"].items()) {
    require_inside(name, from);
    compare((path_exists(from / name) ? from : to) / name, saved, ManifestCheck::hashes);
  }
  return manifest["step"];
}

std::vector<std::string> sealed_files(const fs::path& folder) {
  const Json manifest = read_manifest(folder);
  std::vector<std::string> names;
  for (const auto& [name, saved] : manifest["files"].items()) names.push_back(name);
  return names;
}

void check_file(const fs::path& folder, const std::string& name) {
  const Json manifest = read_manifest(folder);
  compare(folder / name, manifest["files"].value(name, Json()), ManifestCheck::hashes);
}

}  // namespace qtrain
