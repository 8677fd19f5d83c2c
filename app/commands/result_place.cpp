#include "app/commands/result_place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "app/reproduction/statement.h"
#include "core/formats/json.h"
#include "core/os/output_place.h"
#include "core/os/paths.h"
#include "train/checkpoint/foreign_results.h"
#include "train/checkpoint/output_lock.h"
#include "train/checkpoint/pending_model.h"

namespace qtrain {
namespace {

namespace fs = std::filesystem;

/// How a command recognizes a file as its own earlier result.
enum class Mark : std::uint8_t {
  page,      ///< by the title of the page
  row,       ///< by the keys of its first JSON line
  document,  ///< by the keys of its JSON document
  gguf,      ///< by the writer recorded in a GGUF file
  edited,    ///< never: users change it
};
struct OwnFile {
  std::string_view command;
  Mark mark;
  std::vector<std::string_view> keys = {};
  bool (*is_ours)(const Json&) = nullptr;  ///< for keys that other programs use too
};

bool is_tuned(const Json& json) {
  return json["_written_by"] == "qtrain tune";
}

bool is_dump(const Json& row) {
  return row.size() == 3;
}

bool is_monitored(const Json& json) {
  constexpr std::array<std::string_view, 4> kMembers{"samples", "summary", "assessment", "no_gpu"};
  const auto is_sample = [](const Json& s) { return s.is_object() && s.contains("seconds") && s.contains("host"); };
  for (const auto& [name, value] : json.items())
    if (std::ranges::find(kMembers, name) == kMembers.end()) return false;
  return json["samples"].is_array() && std::ranges::all_of(json["samples"], is_sample);
}

bool is_statement(const Json& json) {
  const Json::json_pointer type("/predicate/buildDefinition/buildType");
  return json.contains(type) && json[type] == kBuildType;
}

const std::vector<OwnFile>& own_files() {
  static const std::vector<OwnFile> kFiles{
      {"report", Mark::page},
      {"compare", Mark::page},
      {"generate", Mark::row, {"completion", "finish_reason", "tokens"}},
      {"eval", Mark::row, {"place", "reference", "completion", "exact_match", "finish_reason"}},
      {"preprocess", Mark::row, {"input_ids", "labels", "position_ids"}, is_dump},
      {"tune", Mark::document, {"_written_by"}, is_tuned},
      {"bench", Mark::document, {"version", "device", "dtype", "filter", "results"}},
      {"bench", Mark::document, {"version", "case", "device", "micro_batches", "attributed_ms", "kernels"}},
      {"monitor", Mark::document, {"samples"}, is_monitored},
      {"verify", Mark::document, {"_type", "subject", "predicateType", "predicate"}, is_statement},
      {"export", Mark::gguf},
      {"init", Mark::edited}};
  return kFiles;
}

std::string beginning_of(const fs::path& file, std::size_t bytes) {
  std::error_code absent;
  const auto size = fs::file_size(file, absent);
  std::ifstream in(file, std::ios::binary);
  std::string text(absent ? 0 : std::min<std::uintmax_t>(bytes, size), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

bool has_keys(const Json& json, const std::vector<std::string_view>& keys) {
  return json.is_object() && std::ranges::all_of(keys, [&](std::string_view key) { return json.contains(key); });
}

bool is_own(const OwnFile& own, const fs::path& file) {
  constexpr std::string_view kBeforeTitle = "<link rel=\"icon\" href=\"data:,\">\n<title>";  // report/page/page.html
  constexpr std::size_t kHeadBytes = 1 << 12, kMaxBytes = std::size_t{1} << 28;
  if (own.mark == Mark::edited) return false;
  if (own.mark == Mark::gguf) return gguf_writer(file) == fmt::format("qtrain {}", own.command);
  if (own.mark == Mark::page) {
    const std::string head = beginning_of(file, kHeadBytes);
    return head.starts_with("<!DOCTYPE html>") && head.find(kBeforeTitle) != head.npos &&
           head.find(" - qtrain</title>") != head.npos;
  }
  std::string text = beginning_of(file, kMaxBytes);
  if (own.mark == Mark::row) text.resize(std::min(text.find('\n'), text.size()));
  const Json json = json_in(text);
  return has_keys(json, own.keys) && (!own.is_ours || own.is_ours(json));
}

// Whether the command may write to the file; it may replace an empty one.
bool is_free_file(const Arguments& args, const fs::path& file) {
  std::error_code absent;
  const auto bytes = fs::file_size(file, absent);
  if (absent || bytes == 0 || args.has("overwrite")) return true;
  const auto is_of_command = [&](const OwnFile& own) { return own.command == args.command().name; };
  check(std::ranges::any_of(own_files(), is_of_command), "own_files() has no entry for this command");
  return std::ranges::any_of(own_files(), [&](const OwnFile& own) { return is_of_command(own) && is_own(own, file); });
}

// Checks the folder before the work begins, not after.
void require_folder_of(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  if (::access(folder.c_str(), W_OK | X_OK) == 0 && file.has_filename()) return;
  const std::error_code why(file.has_filename() ? errno : EISDIR, std::generic_category());
  fail(ErrorKind::disk, {.cause = "cannot be written: " + why.message(),
                         .place = file.string(),
                         .remedy = why == std::errc::no_such_file_or_directory ? "create the folder first" : ""});
}

[[noreturn]] void fail_taken(const Arguments& args, const fs::path& place) {
  const bool edited = std::ranges::any_of(
      own_files(), [&](const OwnFile& own) { return own.command == args.command().name && own.mark == Mark::edited; });
  fail(ErrorKind::usage, {.cause = edited ? "exists, and may have been edited"
                                          : fmt::format("exists and was not written by qtrain {}", args.command().name),
                          .place = place.string(),
                          .remedy = "choose another path, or replace it with --overwrite"});
}

}  // namespace

ResultFile::ResultFile(const Arguments& args, fs::path file, const std::vector<fs::path>& inputs)
    : args_(args), file_(std::move(file)) {
  std::error_code absent;
  if (fs::is_directory(file_, absent))
    fail(ErrorKind::usage,
         {.cause = "is a folder", .place = file_.string(), .remedy = "give the name of a file to write"});
  const OutputPlace place = output_place(file_);
  if (place.mode == WriteMode::in_place) return;
  require_outside(place.file, inputs);
  require_no_file_of_checkpoint(place.file);
  require_folder_of(place.file);
  if (!is_free_file(args, place.file)) fail_taken(args, file_);
  found_ = version_of(file_);
}

ResultFile::Version ResultFile::version_of(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return {};
  // Not the device, whose number changes when a network file system is mounted again.
  return {static_cast<std::int64_t>(info.st_ino), info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

fs::path ResultFile::place_now() {
  const OutputPlace place = output_place(file_);
  if (place.mode == WriteMode::in_place || args_.has("overwrite")) return file_;
  // A result of the same command is another's if it was not there before.
  const Version now = version_of(file_);
  std::error_code absent;
  const bool is_known = now.empty() || now == found_ || fs::is_empty(place.file, absent);
  if (is_known && is_free_file(args_, place.file)) return file_;
  fs::path other = place.file;
  for (int number = 2; path_exists(other); ++number) other = fmt::format("{}.{}", place.file.string(), number);
  args_.log().warn("another program has written {} in the meantime: keeping it and writing the result to {}",
                   file_.string(), other.string());
  file_ = other;
  found_ = {};
  return file_;
}

std::function<fs::path(const fs::path& file)> ResultFile::name_now() {
  return [this](const fs::path& asked) {
    const fs::path before = file_, now = place_now();
    return now == before ? asked : now;
  };
}

std::optional<ResultFile> result_file(const Arguments& args, const char* flag, const std::vector<fs::path>& inputs) {
  const auto file = args.text(flag);
  return file ? std::optional<ResultFile>(std::in_place, args, *file, inputs) : std::nullopt;
}

void require_free_folder(const Arguments& args, const fs::path& folder, const std::vector<fs::path>& inputs) {
  // The folder that will be written: "none/../model" is "model" even if "none" does not exist yet.
  const fs::path place = model_place(folder);
  require_outside(place, inputs);
  require_no_folder_of_checkpoint(place);
  if (is_locked(place))
    fail(ErrorKind::usage, {.cause = "a run is writing to this folder",
                            .place = folder.string(),
                            .remedy = "wait for it to finish, or choose another folder"});
  std::error_code absent;
  const fs::file_status there = fs::status(place, absent);
  if (fs::exists(there) && !fs::is_directory(there))
    fail(ErrorKind::usage,
         {.cause = "is not a folder", .place = folder.string(), .remedy = "give the name of a folder to write"});
  if (!fs::exists(there) || args.has("overwrite")) return;
  if (!is_free_for(fmt::format("qtrain {}", args.command().name), place)) fail_taken(args, folder);
}

}  // namespace qtrain
