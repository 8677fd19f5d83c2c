#include "data/row_source.h"

#include <array>

#include "data/inflate.h"

namespace qtrain {
namespace {

std::string_view without_mark(std::string_view text, const std::string& name) {
  if (text.starts_with("\xef\xbb\xbf")) return text.substr(3);
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"))
    fail(ErrorKind::input, {.cause = "the file is UTF-16", .place = name, .remedy = "Save it as UTF-8."});
  return text;
}

/// The ending of a name without that of the compression: ".csv" of "rows.csv.gz".
std::string inner_extension(const std::filesystem::path& file) {
  constexpr std::array<std::string_view, 3> kCompressed = {".gz", ".zst", ".zstd"};
  std::string extension = file.extension().string();
  for (const std::string_view compressed : kCompressed)
    if (extension == compressed) extension = file.stem().extension().string();
  return extension;
}

}  // namespace

FileBytes::FileBytes(const std::filesystem::path& file) : name_(file.string()), mapped_(file), text_(mapped_.text()) {
  if (is_compressed(text_)) {
    inflated_ = inflate_bytes(text_, name_);
    mapped_ = MappedFile();
    text_ = inflated_;
  }
  text_ = without_mark(text_, name_);
  if (text_.find_first_not_of(" \t\r\n") == std::string_view::npos)
    fail(ErrorKind::input, {.cause = "the file is empty", .place = name_, .remedy = "Give it rows."});
}

RowSourcePtr open_rows(const std::filesystem::path& file) {
  FileBytesPtr bytes = std::make_shared<FileBytes>(file);
  const std::string_view text = bytes->text();
  if (text.starts_with("PAR1")) return open_parquet_rows(std::move(bytes));
  if (text.starts_with("ARROW1") || text.starts_with("\xff\xff\xff\xff")) return open_arrow_rows(std::move(bytes));
  const std::string extension = inner_extension(file);
  if (extension == ".parquet" || extension == ".arrow")
    fail(ErrorKind::input, {.cause = "the file does not begin as its name says",
                            .place = bytes->name(),
                            .remedy = "Check that it was copied whole and as it is."});
  if (extension == ".csv") return open_csv_rows(std::move(bytes), ',');
  if (extension == ".tsv") return open_csv_rows(std::move(bytes), '\t');
  return open_json_rows(std::move(bytes));
}

}  // namespace qtrain
