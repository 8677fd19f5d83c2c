#include "data/listing.h"

#include <algorithm>
#include <array>
#include <set>
#include <system_error>
#include <utility>

#include "data/source/raw_rows.h"

namespace qtrain {
namespace {

namespace stdfs = std::filesystem;

/// Whether a run wrote the file: its logs next to its config, and its checkpoints.
bool is_of_run(const stdfs::path& path) {
  constexpr std::array<std::string_view, 4> kNames{"metrics.jsonl", "messages.jsonl", "samples.jsonl", "runs"};
  std::error_code error;
  if (!stdfs::exists(path.parent_path() / "resolved_config.json", error)) return false;
  const std::string name = path.filename().string();
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.starts_with("checkpoint-");
}

/// Finds data files and saved folders below a folder, and plain texts in subtrees without other data.
class DataSearch {
 public:
  std::vector<stdfs::path> found;

  void search(const stdfs::path& folder) {
    std::error_code error;
    const stdfs::path real = stdfs::canonical(folder, error);
    if (error || !seen_.insert(real).second) return;
    if (is_saved_folder(folder)) return add(folder);
    const std::int64_t before = data_;
    std::vector<stdfs::path> texts;
    for (stdfs::directory_iterator at(folder, stdfs::directory_options::skip_permission_denied, error), end;
         !error && at != end; at.increment(error))
      take(at->path(), texts);
    if (data_ == before) found.insert(found.end(), texts.begin(), texts.end());
  }

 private:
  void take(const stdfs::path& path, std::vector<stdfs::path>& texts) {
    std::error_code error;
    if (path.filename().string().starts_with('.') || is_of_run(path)) return;
    if (stdfs::is_directory(path, error)) return search(path);
    if (!stdfs::is_regular_file(path, error)) return;
    if (is_data_file(path))
      add(path);
    else if (is_text_file(path))
      texts.push_back(path);
  }
  void add(const stdfs::path& path) {
    found.push_back(path);
    ++data_;
  }

  std::set<stdfs::path> seen_;
  std::int64_t data_ = 0;  // files found, not counting plain texts
};

/// Whether a .json file contains a document rather than rows: one object over several lines, or other values.
bool is_document(const RowSource& rows) {
  const bool json = rows.format() == "json" || rows.format() == "jsonl";
  if (!json || !rows.name().ends_with(".json")) return false;
  try {
    if (rows.size() > 0 && rows.parse(0).is_object()) return rows.size() == 1 && rows.format() == "jsonl";
  } catch (const Error&) {  // the first line is not an object
  }
  return true;
}

std::int64_t estimated_rows(const RowSource& rows, const stdfs::path& file, ListedData& out) {
  constexpr std::uint64_t kWhole = std::uint64_t{64} << 20;
  std::error_code error;
  const std::uint64_t bytes = stdfs::file_size(file, error);
  out.bytes += error ? 0 : bytes;
  constexpr std::array<std::string_view, 4> kOfLines = {"jsonl", "csv", "tsv", "text"};
  const bool lines = std::find(kOfLines.begin(), kOfLines.end(), rows.format()) != kOfLines.end();
  if (!lines || error || bytes <= kWhole) return rows.size();
  out.estimated = true;
  return static_cast<std::int64_t>(static_cast<double>(rows.size()) * static_cast<double>(bytes) / kWhole);
}

void look_at_first_row(const RowSource& rows, const ShapeRules& rules, ListedData& out) {
  const Json first = rows.parse(0);
  for (const auto& [key, value] : first.items()) out.columns.push_back(key);
  out.shape = shape_name(first, rules);
  with_place(rows.place(0), [&] { return naming_unread(rows, [&] { return read_sample(first, rules); }); });
}

/// Fills in the listing of a file; false if it contains no rows of data.
bool look_into(const ShapeRules& rules, ListedData& out) {
  try {
    for (const stdfs::path& file : resolve_data_files({out.path.string()}, Split::train)) {
      const RowSourcePtr rows = open_rows(file, FilePart::beginning);
      if (is_document(*rows)) return false;
      const bool first = out.format.empty();
      out.format = rows->format();
      out.rows += estimated_rows(*rows, file, out);
      if (first && rows->size() > 0) look_at_first_row(*rows, rules, out);
    }
    if (out.rows == 0) out.problem = "it has no rows";
  } catch (const Error& e) {  // list it with its problem
    out.problem = e.text().cause;
    if (const std::string& place = e.text().place; place.find(":") != std::string::npos)
      out.problem = place.substr(place.rfind('/') + 1) + ": " + out.problem;
  }
  return true;
}

}  // namespace

std::vector<ListedData> list_data(const stdfs::path& path, const ShapeRules& rules) {
  std::error_code error;
  DataSearch search;
  if (stdfs::is_directory(path, error)) {
    search.search(path);
  } else if (stdfs::exists(path, error)) {
    search.found.push_back(path);
  } else {
    fail(ErrorKind::input, {.cause = "no such file or folder", .place = path.string()});
  }
  std::sort(search.found.begin(), search.found.end());
  std::vector<ListedData> all;
  for (const stdfs::path& found : search.found) {
    ListedData listed{.path = found};
    if (look_into(rules, listed)) all.push_back(std::move(listed));
  }
  return all;
}

}  // namespace qtrain
