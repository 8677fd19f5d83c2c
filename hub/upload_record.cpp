#include "hub/upload_record.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/formats/json.h"
#include "core/os/descriptor.h"
#include "core/os/file.h"
#include "core/os/paths.h"
#include "core/sha256.h"
#include "hub/upload_targets.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;

/// Creates the file, so that writing it keeps its mode.
void create_private(const fs::path& file) {
  constexpr mode_t kOwnFolder = 0700, kOwnFile = 0600;
  create_folders(file.parent_path());
  ::chmod(file.parent_path().c_str(), kOwnFolder);
  const Descriptor created(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kOwnFile));
}

std::optional<UploadRecord> record_in(const Json& json, const LargeObject& object, const UploadPlace& place) {
  if (!json.is_object() || json.value("format_version", Json()) != kFormat ||
      json.value("sha256", Json()) != object.sha256 || json.value("size", Json()) != object.size ||
      json.value("repository", Json()) != place.page())
    return {};
  Json answer{
      {"objects",
       {{{"oid", object.sha256},
         {"actions", {{"upload", {{"href", json.value("url", Json())}, {"header", json.value("parts", Json())}}}}}}}}};
  if (!text_at(json, "verify").empty())
    answer["objects"][0]["actions"]["verify"] = {{"href", json.value("verify", Json())}};
  UploadRecord record{.target = read_targets(answer, std::span(&object, 1), place).front()};
  const Json etags = json.value("etags", Json::array());
  if (record.target.parts.empty() || !etags.is_array() || etags.size() != record.target.parts.size()) return {};
  for (const Json& etag : etags) record.etags.push_back(etag.is_string() ? etag.get<std::string>() : "");
  return record;
}

}  // namespace

bool UploadRecord::is_complete() const {
  return std::ranges::none_of(etags, [](const std::string& etag) { return etag.empty(); });
}

fs::path UploadRecords::file_of(const std::string& sha256) const {
  return folder_ / (sha256_of(place_.page() + "\n" + sha256) + ".json");
}

std::optional<UploadRecord> UploadRecords::read(const LargeObject& object) const {
  std::error_code ignored;
  if (folder_.empty() || !fs::is_regular_file(file_of(object.sha256), ignored)) return {};
  try {
    return record_in(read_json(file_of(object.sha256), {.max_bytes = std::uint64_t{1} << 27}), object, place_);
  } catch (const Error&) {  // a damaged record is none
    return {};
  }
}

void UploadRecords::write(const UploadRecord& record) const {
  if (folder_.empty()) return;
  Json parts{{"chunk_size", record.target.chunk_size}};
  for (std::size_t i = 0; i < record.target.parts.size(); ++i) parts[std::to_string(i + 1)] = record.target.parts[i];
  const Json json{{"format_version", kFormat},  {"repository", place_.page()}, {"sha256", record.target.sha256},
                  {"size", record.target.size}, {"url", record.target.url},    {"verify", record.target.verify},
                  {"parts", std::move(parts)},  {"etags", record.etags}};
  try {
    create_private(file_of(record.target.sha256));
    write_file(file_of(record.target.sha256), dump_json(json));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::disk) throw;
  }
}

void UploadRecords::remove(const std::string& sha256) const {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove(file_of(sha256), ignored);
}

}  // namespace qtrain
