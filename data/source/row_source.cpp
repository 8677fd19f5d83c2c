#include "data/source/row_source.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include "core/os/stop.h"
#include "data/source/arrow/arrow_rows.h"
#include "data/source/csv_rows.h"
#include "data/source/inflate.h"
#include "data/source/json_rows.h"
#include "data/source/parquet/parquet_rows.h"
#include "data/source/text_rows.h"

namespace qtrain {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::uint64_t kBeginning = std::uint64_t{64} << 20;

std::string_view without_mark(std::string_view text, const std::string& name) {
  if (text.starts_with("\xef\xbb\xbf")) return text.substr(3);
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    fail(ErrorKind::input, {.cause = "the file is UTF-16", .place = name, .remedy = "Save it as UTF-8."});
  return text;
}

/// Folder for large decompressed contents: one on disk, which /tmp often is not.
std::filesystem::path spool_folder() {
  for (const char* folder : {const_cast<const char*>(std::getenv("TMPDIR")), "/var/tmp", "/tmp"})
    if (folder != nullptr && *folder != '\0' && ::access(folder, W_OK | X_OK) == 0) return folder;
  return {};
}

bool is_parquet(std::string_view text) {
  return text.starts_with("PAR1");
}
bool is_columnar(std::string_view text) {
  return is_parquet(text) || text.starts_with("ARROW1") || text.starts_with("\xff\xff\xff\xff");
}

}  // namespace

std::string inner_extension(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 3> kCompressed = {".gz", ".zst", ".zstd"};
  std::string extension = file.extension().string();
  for (const std::string_view compressed : kCompressed)
    if (extension == compressed) extension = file.stem().extension().string();
  return extension;
}
bool is_text_file(const std::filesystem::path& file) {
  return inner_extension(file) == ".txt";
}

FileBytes::FileBytes(const std::filesystem::path& file, FilePart part)
    : name_(file.string()), mapped_(file), inflated_({.folder = spool_folder()}), text_(mapped_.text()) {
  if (part == FilePart::beginning && text_.size() > kBeginning) leave_beginning();
  if (is_compressed(text_)) {
    inflate_bytes({text_, name_}, [&](std::string_view piece) { inflated_.append(std::as_bytes(std::span(piece))); });
    mapped_ = MappedFile();
    const std::span<const std::byte> all = inflated_.bytes();
    text_ = {reinterpret_cast<const char*>(all.data()), all.size()};
  }
  text_ = without_mark(text_, name_);
  if (text_.find_first_not_of(kBlanks) == std::string_view::npos)
    fail(ErrorKind::input, {.cause = "the file is empty", .place = name_, .remedy = "Add rows to it."});
}

/// Keeps the first whole lines of text. Columnar formats are kept whole, since their metadata is at the end.
void FileBytes::leave_beginning() {
  if (is_columnar(text_)) return;
  if (is_compressed(text_))
    fail(ErrorKind::input, {.cause = "not inspected, because it is large and compressed", .place = name_});
  const std::size_t first = text_.find_first_not_of(kBlanks), last = text_.rfind('\n', kBeginning);
  if (first == std::string_view::npos || text_[first] == '[' || last == std::string_view::npos) return;
  text_ = text_.substr(0, last + 1);
  is_whole_ = false;
}

RowSourcePtr open_rows(const std::filesystem::path& file, FilePart part) {
  FileBytesPtr bytes = std::make_shared<FileBytes>(file, part);
  const std::string_view text = bytes->text();
  if (is_columnar(text))
    return is_parquet(text) ? open_parquet_rows(std::move(bytes)) : open_arrow_rows(std::move(bytes));
  const std::string extension = inner_extension(file);
  if (text.starts_with("FEA1"))
    fail(ErrorKind::input, {.cause = "Feather version 1 is not supported",
                            .place = bytes->name(),
                            .remedy = "Save it as version 2, the default of pyarrow and pandas."});
  if (extension == ".parquet" || extension == ".arrow" || extension == ".feather" || extension == ".ipc")
    fail(ErrorKind::input, {.cause = "the contents do not match the file extension",
                            .place = bytes->name(),
                            .remedy = "Check that it was copied completely and unchanged."});
  if (extension == ".csv") return open_csv_rows(std::move(bytes), ',');
  if (extension == ".tsv") return open_csv_rows(std::move(bytes), '\t');
  if (is_text_file(file)) return open_text_rows(std::move(bytes));
  return open_json_rows(std::move(bytes));
}

std::size_t find_break(std::string_view text, const BreakSearch& search) {
  constexpr std::size_t kPiece = std::size_t{1} << 24;
  for (std::size_t begin = search.from; begin < text.size(); begin += kPiece) {
    throw_if_stopped();
    const std::string_view piece = text.substr(begin, kPiece);
    const std::size_t at =
        search.breaks.size() == 1 ? piece.find(search.breaks[0]) : piece.find_first_of(search.breaks);
    if (at != std::string_view::npos) return begin + at;
  }
  return std::string_view::npos;
}

}  // namespace qtrain
