#include "core/formats/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/formats/json_items.h"
#include "core/formats/key_lines.h"
#include "core/keyed_hash.h"
#include "core/os/file.h"
#include "core/utf8.h"

namespace qtrain {
namespace {

/// Line and column (bytes), counted from 1, of a byte offset.
struct Position {
  std::size_t line = 1, column = 1;
};

Position position_of(std::string_view text, std::size_t offset) {
  const auto before = text.substr(0, std::min(offset, text.size()));
  const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const auto newline = before.rfind('\n');
  return {line, newline == std::string_view::npos ? before.size() + 1 : before.size() - newline};
}

/// "file:line:column"; a name that already ends in a line (one JSONL row) only gets the column.
std::string place_of(std::string_view name, Position at) {
  const auto colon = name.rfind(':');
  const bool has_line = at.line == 1 && colon != std::string_view::npos && colon + 1 < name.size() &&
                        name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return has_line ? fmt::format("{}:{}", name, at.column) : fmt::format("{}:{}:{}", name, at.line, at.column);
}

/// The beginning of a part of the file, which can have any size, for a message.
std::string shortened(std::string_view text) {
  constexpr std::size_t kMaxShown = 200;
  if (text.size() <= kMaxShown) return std::string(text);
  std::size_t end = kMaxShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

constexpr std::size_t kFewKeys = 12;  // up to which comparing all pairs beats a table

bool all_differ(const std::vector<std::string>& keys) {
  for (std::size_t i = 1; i < keys.size(); ++i)
    if (std::find(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(i), keys[i]) !=
        keys.begin() + static_cast<std::ptrdiff_t>(i))
      return false;
  return true;
}

/// Iterates over the text and records how far the parser has read, so that callbacks know their position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    const auto old = *this;
    ++*this;
    return old;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) { return a.at_ == b.at_; }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  const char** seen_;
};

/// Builds the document bottom-up. An object's members are collected first and moved in once: the ordered map looks
/// every key up linearly and copies all members whenever it grows, which a vocabulary of 150,000 entries can't bear.
class Builder {
 public:
  struct Input {
    std::string_view text, name;
    const JsonRules& rules;
    const JsonItems* items;
  };
  explicit Builder(const Input& in)
      : text_(in.text), name_(in.name), rules_(in.rules), items_(in.items), seen_(in.text.data()) {}

  const char** seen() { return &seen_; }
  Json take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(false); }
  bool start_array(std::size_t) {
    return open(items_ && stack_.size() == 1 && !stack_[0].keys.empty() && stack_[0].keys.back() == items_->list);
  }

  bool key(std::string& name) {
    auto& frame = stack_.back();
    frame.keys.push_back(std::move(name));
    frame.offsets.push_back(static_cast<std::size_t>(seen_ - text_.data()) - 1);
    if (rules_.key_lines) note_line();
    return true;
  }

  bool end_array() {
    Json::array_t values = std::move(stack_.back().values);
    stack_.pop_back();
    return add(std::move(values));
  }

  bool end_object() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    drop_duplicates(frame);
    Json::object_t object;
    object.reserve(frame.keys.size());
    for (std::size_t i = 0; i < frame.keys.size(); ++i)
      object.emplace_back(std::move(frame.keys[i]), std::move(frame.values[i]));
    return add(std::move(object));
  }

  bool parse_error(std::size_t consumed, const std::string&, const Json::exception& error) {
    const std::size_t offset = consumed == 0 ? 0 : consumed - 1;
    fail_at(offset, syntax_message(offset, error.what()));
  }

 private:
  struct Frame {
    std::vector<std::string> keys;
    std::vector<std::size_t> offsets;
    std::vector<Json> values;
  };

  [[noreturn]] void fail_at(std::size_t offset, std::string cause) const {
    fail(rules_.blame, {.cause = std::move(cause), .place = place_of(name_, position_of(text_, offset))});
  }

  bool open(bool hands_over) {
    if (static_cast<int>(stack_.size()) >= rules_.max_depth)
      fail_at(static_cast<std::size_t>(seen_ - text_.data()) - 1,
              fmt::format("JSON is nested deeper than {} levels", rules_.max_depth));
    stack_.emplace_back();
    if (stack_.size() == 2) hands_over_ = hands_over;
    return true;
  }

  template <class T>
  bool add(T&& value) {
    if (++values_ > rules_.max_values)
      fail_at(static_cast<std::size_t>(seen_ - text_.data()) - 1,
              fmt::format("JSON holds more than {} values", rules_.max_values));
    if (stack_.empty()) {
      root_ = Json(std::forward<T>(value));
    } else if (hands_over_ && stack_.size() == 2) {
      items_->take(Json(std::forward<T>(value)));
    } else {
      stack_.back().values.emplace_back(std::forward<T>(value));
    }
    return true;
  }

  void note_line() {
    line_ += static_cast<int>(std::count(line_end_, seen_, '\n'));
    line_end_ = seen_;
    std::string path;
    for (const Frame& frame : stack_) {
      if (frame.keys.empty()) return;  // a list
      if (path.size() + frame.keys.back().size() > kMaxKeyWithLine) return;
      path += (path.empty() ? "" : ".") + frame.keys.back();
    }
    rules_.key_lines->emplace(std::move(path), line_);
  }

  /// Merges duplicate keys like Python's dict: the first occurrence keeps its place, the last one its value.
  void drop_duplicates(Frame& frame) const {
    const std::size_t count = frame.keys.size();
    if (count <= kFewKeys && all_differ(frame.keys)) return;
    std::unordered_map<std::string_view, std::size_t, KeyedHash> first;
    first.reserve(count);
    std::vector<std::size_t> kept;
    for (std::size_t i = 0; i < count; ++i) {
      const auto [entry, is_new] = first.emplace(frame.keys[i], i);
      if (is_new) {
        kept.push_back(i);
      } else if (!rules_.duplicate_keys) {
        const auto line = position_of(text_, frame.offsets[entry->second]).line;
        fail_at(frame.offsets[i],
                fmt::format("key \"{}\" is given twice (first on line {})", shortened(frame.keys[i]), line));
      } else {
        frame.values[entry->second] = std::move(frame.values[i]);
      }
    }
    if (kept.size() == count) return;
    Frame unique;
    for (const auto i : kept) {
      unique.keys.push_back(std::move(frame.keys[i]));
      unique.values.push_back(std::move(frame.values[i]));
    }
    frame = std::move(unique);
  }

  /// The library's message without its prefix; the most common mistakes get a clearer one.
  std::string syntax_message(std::size_t offset, std::string_view what) const {
    if (text_.find_first_not_of(" \t\r\n") == std::string_view::npos) return "the JSON document is empty";
    const auto before = text_.substr(0, std::min(offset, text_.size()));
    const auto last = before.find_last_not_of(" \t\r\n");
    if (offset < text_.size() && (text_[offset] == ']' || text_[offset] == '}') && last != std::string_view::npos &&
        before[last] == ',')
      return fmt::format("trailing comma before '{}'", text_[offset]);
    const auto word = text_.substr(last == std::string_view::npos ? 0 : before.find_last_of(" \t\r\n,:[{") + 1);
    for (const std::string_view number : {"NaN", "Infinity", "-Infinity"})
      if (word.starts_with(number)) return fmt::format("{} is not a JSON number", number);
    if (word.starts_with("//") || word.starts_with("/*")) return "comments are not allowed here";
    const auto column = what.find("column ");
    const auto colon = what.find(": ", column == std::string_view::npos ? 0 : column);
    const auto bracket = what.find("] ");
    if (colon != std::string_view::npos)
      what.remove_prefix(colon + 2);
    else if (bracket != std::string_view::npos)
      what.remove_prefix(bracket + 2);
    return "invalid JSON: " + shortened(what.substr(0, what.find("; last read: '\"")));  // a text may be a secret
  }

  std::string_view text_, name_;
  const JsonRules& rules_;
  const JsonItems* items_;
  const char* seen_;
  const char* line_end_ = text_.data();  // lines are counted up to here
  int line_ = 1;
  std::uint64_t values_ = 0;
  bool hands_over_ = false;  // items of the list on level 2 are handed over one by one
  std::vector<Frame> stack_;
  Json root_;
};

/// Writes JSON as Python's json.dumps does.
class Dumper {
 public:
  explicit Dumper(int indent) : indent_(indent) {}
  std::string take() { return std::move(out_); }

  void value(const Json& v) {
    switch (v.type()) {
      case Json::value_t::null: out_ += "null"; return;
      case Json::value_t::boolean: out_ += v.get<bool>() ? "true" : "false"; return;
      case Json::value_t::number_integer: out_ += std::to_string(v.get<std::int64_t>()); return;
      case Json::value_t::number_unsigned: out_ += std::to_string(v.get<std::uint64_t>()); return;
      case Json::value_t::number_float: number(v.get<double>()); return;
      case Json::value_t::string: string(v.get_ref<const std::string&>()); return;
      case Json::value_t::array: return array(v.get_ref<const Json::array_t&>());
      case Json::value_t::object: return object(v.get_ref<const Json::object_t&>());
      case Json::value_t::binary: out_ += "null"; return;  // not a JSON type: it marks a value that was not read
      default: check(false, "a JSON value without a text form");
    }
  }

 private:
  void array(const Json::array_t& items) {
    if (items.empty()) return void(out_ += "[]");
    out_ += '[';
    ++depth_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      separate(i);
      value(items[i]);
    }
    close(']');
  }

  void object(const Json::object_t& members) {
    if (members.empty()) return void(out_ += "{}");
    out_ += '{';
    ++depth_;
    std::size_t i = 0;
    for (const auto& [key, item] : members) {
      separate(i++);
      string(key);
      out_ += ": ";
      value(item);
    }
    close('}');
  }

  void separate(std::size_t i) {
    if (i > 0) out_ += indent_ < 0 ? ", " : ",";
    if (indent_ >= 0) new_line();
  }
  void close(char bracket) {
    --depth_;
    if (indent_ >= 0) new_line();
    out_ += bracket;
  }
  void new_line() {
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(depth_), ' ');
  }

  void string(std::string_view s) {
    std::string repaired;  // file names need not be UTF-8
    if (std::ranges::any_of(s, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }) && !is_valid_utf8(s))
      s = repaired = valid_utf8(s);
    out_ += '"';
    for (const char c : s) {
      switch (c) {
        case '"': out_ += "\\\""; break;
        case '\\': out_ += "\\\\"; break;
        case '\n': out_ += "\\n"; break;
        case '\r': out_ += "\\r"; break;
        case '\t': out_ += "\\t"; break;
        case '\f': out_ += "\\f"; break;
        case '\b': out_ += "\\b"; break;
        default:
          if (static_cast<unsigned char>(c) < 0x20) {
            out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
          } else {
            out_ += c;
          }
      }
    }
    out_ += '"';
  }

  /// Python's float repr: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
  void number(double x) {
    if (std::isnan(x)) return void(out_ += "NaN");
    if (std::isinf(x)) return void(out_ += x > 0 ? "Infinity" : "-Infinity");
    char buffer[40];
    const double magnitude = std::abs(x);
    const bool plain = x == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
    const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, format).ptr;
    const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
    out_ += digits;
    if (plain && digits.find('.') == std::string_view::npos) out_ += ".0";
  }

  int indent_, depth_ = 0;
  std::string out_;
};

Json build_json(const Builder::Input& in) {
  if (in.text.size() > in.rules.max_bytes)
    fail(in.rules.blame, {.cause = fmt::format("has {} bytes, more than the {} allowed for its kind", in.text.size(),
                                               in.rules.max_bytes),
                          .place = std::string(in.name)});
  Builder builder(in);
  const CountingIterator begin(in.text.data(), builder.seen()), end(in.text.data() + in.text.size(), builder.seen());
  const bool whole = Json::sax_parse(begin, end, &builder, Json::input_format_t::json, true, in.rules.comments);
  check(whole, "the JSON parser stopped without an error");
  return builder.take();
}

std::string json_text(const std::filesystem::path& file, const JsonRules& rules) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    fail(ErrorKind::input, {.cause = "no such file", .place = file.string(), .remedy = "check the path"});
  std::string text;
  try {
    text = read_text(file, rules.max_bytes);
  } catch (const Error& error) {
    fail(rules.blame, error.text());
  }
  if (is_lfs_pointer(text)) fail_lfs_pointer(file);
  return text;
}

}  // namespace

Json parse_json(std::string_view text, std::string_view name, const JsonRules& rules) {
  return build_json({.text = text, .name = name, .rules = rules, .items = nullptr});
}

Json json_in(std::string_view text) try {
  return parse_json(text, "", {.duplicate_keys = true});
} catch (const Error&) {
  return nullptr;
}

Json read_json(const std::filesystem::path& file, const JsonRules& rules) {
  return parse_json(json_text(file, rules), file.string(), rules);
}

Json parse_json_items(std::string_view text, std::string_view name, const JsonItems& items, const JsonRules& rules) {
  return build_json({.text = text, .name = name, .rules = rules, .items = &items});
}

Json read_json_items(const std::filesystem::path& file, const JsonItems& items, const JsonRules& rules) {
  const std::string text = json_text(file, rules), name = file.string();
  return build_json({.text = text, .name = name, .rules = rules, .items = &items});
}

std::string dump_json(const Json& value, int indent) {
  Dumper dumper(indent);
  dumper.value(value);
  return dumper.take();
}

}  // namespace qtrain
