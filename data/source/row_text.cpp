#include "data/source/row_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/source/doubtful_row.h"

namespace qtrain {
namespace {

[[noreturn]] void bad_text(std::string_view text, std::string_view why) {
  fail(ErrorKind::usage, {.cause = fmt::format("\"{}\": {}", text, why),
                          .remedy = "Put column names in braces, {question}; write a literal brace twice."});
}

const Json* cell_of(const Json& row, const std::string& column) {
  const auto at = row.find(column);
  return at == row.end() || at->is_null() ? nullptr : &*at;
}

}  // namespace

bool RowText::has_columns(std::string_view text) {
  return text.find_first_of("{}") != std::string_view::npos;
}

RowText::RowText(std::string_view text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool twice = at + 1 < text.size() && text[at + 1] == c;
    if (c != '{' && c != '}') {
      between_.back() += c;
    } else if (twice) {
      between_.back() += c;
      ++at;
    } else {
      const std::size_t end = c == '{' ? text.find_first_of("{}", at + 1) : std::string_view::npos;
      if (end == std::string_view::npos || text[end] == '{') bad_text(text, "unbalanced brace");
      const std::string_view name = text.substr(at + 1, end - at - 1);
      if (name.empty() || name.find_first_of("!:[].") != std::string_view::npos)
        bad_text(text, "a field that is not a column name");
      columns_.emplace_back(name);
      between_.emplace_back();
      at = end;
    }
  }
}

bool RowText::fits(const Json& row) const {
  return std::all_of(columns_.begin(), columns_.end(), [&](const auto& column) { return cell_of(row, column); });
}

bool RowText::filled(const Json& row) const {
  return std::all_of(columns_.begin(), columns_.end(), [&](const auto& column) {
    const Json* cell = cell_of(row, column);
    return cell != nullptr && *cell != "";
  });
}

std::string RowText::of(const Json& row) const {
  std::string out = between_[0];
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Json& cell = row.at(columns_[i]);
    if (const std::string doubt = doubt_of(cell); !doubt.empty())
      fail(ErrorKind::input, {.cause = fmt::format("column '{}': {}", columns_[i], doubt)});
    if (!cell.is_string() && !cell.is_number())
      fail(ErrorKind::input, {.cause = fmt::format("column '{}' is not text but {}", columns_[i], cell.type_name())});
    out += cell.is_string() ? cell.get_ref<const std::string&>() : dump_json(cell);
    out += between_[i + 1];
  }
  return out;
}

}  // namespace qtrain
