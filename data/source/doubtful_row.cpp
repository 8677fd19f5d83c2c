#include "data/source/doubtful_row.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/formats/json_object.h"
#include "core/keyed_hash.h"

namespace qtrain {
namespace {

constexpr std::string_view kBlankSigns = " \t\r\n";

/// Scans the text of a row.
class RowWalk {
 public:
  explicit RowWalk(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  std::size_t at() const { return at_; }
  void skip_blanks() { at_ = std::min(text_.find_first_not_of(kBlankSigns, at_), text_.size()); }
  bool take(char c) {
    skip_blanks();
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  /// A string including its quotes; empty if there is none.
  std::string_view string() {
    skip_blanks();
    const std::size_t begin = at_;
    if (!at_end() && text_[at_] == '"') skip_string();
    return text_.substr(begin, at_ - begin);
  }
  /// The text up to the comma or bracket that ends a value.
  std::string_view value() {
    skip_blanks();
    const std::size_t begin = at_;
    for (int depth = 0; !at_end();) {
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }
  void move_to(std::size_t at) { at_ = at; }

 private:
  void skip_string() {
    for (++at_; !at_end() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' || c == '.';
}

/// NaN, an infinity, or a number out of range.
bool is_no_number(std::string_view word) {
  if (word == "NaN" || word == "Infinity" || word == "-Infinity") return true;
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc::result_out_of_range && end == word.data() + word.size();
}

/// The text with null in place of what is not a JSON number.
std::string with_nulls(std::string_view value) {
  std::string out;
  for (RowWalk walk(value); !walk.at_end();) {
    const std::size_t begin = walk.at();
    if (value[begin] == '"') {
      out += walk.string();
      continue;
    }
    std::size_t end = begin;
    while (end < value.size() && is_of_word(value[end])) ++end;
    const std::string_view word = value.substr(begin, end - begin);
    out += word.empty() ? value.substr(begin, 1) : is_no_number(word) ? "null" : word;
    walk.move_to(std::max(end, begin + 1));
  }
  return out;
}

Json doubt(const std::string& why) {
  return Json::binary({why.begin(), why.end()});
}

/// The parsed value; a doubt if only a lenient parser accepts it, none if nothing does.
std::optional<Json> value_of(std::string_view text, const std::string& place) {
  try {
    return parse_json(text, place);
  } catch (const Error& e) {
    try {
      parse_json(with_nulls(text), place, {.duplicate_keys = true});
    } catch (const Error&) {
      return std::nullopt;
    }
    return doubt(e.text().cause);
  }
}

}  // namespace

std::optional<Json> doubtful_row(std::string_view text, const std::string& place) {
  RowWalk walk(text);
  std::vector<std::pair<std::string, Json>> members;
  std::unordered_map<std::string, std::size_t, KeyedHash> places;  // of the members, since a row may have very many
  if (!walk.take('{')) return std::nullopt;
  while (!walk.take('}')) {
    if (!members.empty() && !walk.take(',')) return std::nullopt;
    const auto key = value_of(walk.string(), place);
    if (!key || !key->is_string() || !walk.take(':')) return std::nullopt;
    auto value = value_of(walk.value(), place);
    if (!value) return std::nullopt;
    const auto name = key->get<std::string>();
    if (const auto [place, is_new] = places.emplace(name, members.size()); is_new)
      members.emplace_back(name, std::move(*value));
    else
      members[place->second].second = doubt("the key is given twice");
  }
  walk.skip_blanks();
  if (!walk.at_end()) return std::nullopt;
  JsonObject row;
  for (auto& [name, value] : members) row.add(name, std::move(value));
  return row.take();
}

std::string doubt_of(const Json& value) {
  if (!value.is_binary()) return {};
  const auto& why = value.get_binary();
  return {why.begin(), why.end()};
}

}  // namespace qtrain
