#include "text/template/python/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/numbers.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

constexpr std::size_t kMaxWidth = 1'000'000;
constexpr int kMaxPrecision = 300;

/// Formatting options of "%-08.3f" and of format()'s "[[fill]align][sign][#][0][width][,][.precision][type]".
struct PySpec {
  char32_t fill = ' ';
  char align = '\0';  ///< '<', '>', '^', '=' (sign first, then fill), or 0
  char sign = '-';    ///< '-', '+' or ' '
  bool alternate = false;
  std::size_t width = 0;
  char grouping = '\0';  ///< ',' or '_'
  std::optional<int> precision = {};
  char type = '\0';
};

std::string in_base(PyInt value, int base) {
  std::string out;
  for (; value != 0; value /= base) {
    const int digit = std::abs(static_cast<int>(value % base));
    out += static_cast<char>(digit < 10 ? '0' + digit : 'a' + digit - 10);
  }
  if (out.empty()) out += '0';
  return {out.rbegin(), out.rend()};
}

/// Inserts separators between groups of digits, from the right; `digits` may have a fraction.
std::string grouped(const std::string& digits, char separator, std::size_t size) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string sign_of(bool negative, const PySpec& spec) {
  return negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
}

/// A float with type letter `r` or none: its repr, or %g with at least one digit after the point.
std::string general_real(double value, const PySpec& spec) {
  if (!spec.precision) return py_real_text(value);
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.*g", std::max(1, std::min(*spec.precision, kMaxPrecision)), value);
  std::string text = buffer;
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

/// Parses a width or precision at `pos`; throws if it is absurdly large.
std::size_t parse_spec_number(std::string_view text, std::size_t& pos) {
  std::size_t number = 0;
  for (; pos < text.size() && text[pos] >= '0' && text[pos] <= '9'; ++pos) {
    number = number * 10 + static_cast<std::size_t>(text[pos] - '0');
    if (number > kMaxWidth) py_fail("a width or precision in a format is too large");
  }
  return number;
}

/// The value formatted by its type letter, with sign; the type is one of d b o x X c, or e E f F g G %.
std::string spec_integer(PyInt value, const PySpec& spec) {
  const bool hex = spec.type == 'x' || spec.type == 'X';
  const int base = hex ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  std::string digits = in_base(value, base);
  if (spec.type == 'X') digits = py_upper(digits);
  if (spec.precision && digits.size() < static_cast<std::size_t>(*spec.precision))
    digits.insert(0, static_cast<std::size_t>(*spec.precision) - digits.size(), '0');
  if (spec.grouping) digits = grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + spec.type : "";
  return sign_of(value < 0, spec) + prefix + digits;
}

std::string spec_real(double value, const PySpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double size = std::fabs(value) * (spec.type == '%' ? 100.0 : 1.0);
  const bool capitals = spec.type >= 'A' && spec.type <= 'Z';
  std::string digits;
  if (!std::isfinite(size)) {
    digits = std::isnan(size) ? "nan" : "inf";
    if (capitals) digits = py_upper(digits);
  } else if (spec.type == '\0') {
    digits = general_real(size, spec);
  } else {
    char letter = spec.type == '%' ? 'f' : spec.type;
    if (letter == 'n') letter = 'g';
    const std::string c_format = std::string("%") + (spec.alternate ? "#" : "") + ".*" + letter;
    char buffer[1000];
    std::snprintf(buffer, sizeof buffer, c_format.c_str(), std::min(spec.precision.value_or(6), kMaxPrecision), size);
    digits = buffer;
  }
  if (spec.grouping) digits = grouped(digits, spec.grouping, 3);
  return sign_of(negative, spec) + digits + (spec.type == '%' ? "%" : "");
}

/// Pads to the width.
std::string spec_pad(PyWork& work, std::string text, const PySpec& spec, char otherwise) {
  const std::size_t size = count_code_points(text);
  if (size >= spec.width) return text;
  std::size_t pad = spec.width - size;
  work.make(spec.width * 4);
  const char align = spec.align ? spec.align : otherwise;
  std::string filling;
  for (std::size_t i = 0; i < pad; ++i) append_code_point(filling, spec.fill);
  if (align == '<') return text + filling;
  if (align == '>') return filling + text;
  if (align == '^') {
    const std::size_t left = filling.size() / pad * (pad / 2);
    return filling.substr(0, left) + text + filling.substr(left);
  }
  std::size_t head = !text.empty() && std::string_view("+- ").find(text[0]) != std::string_view::npos ? 1 : 0;
  if (spec.alternate && text.size() > head + 1 && text[head] == '0' &&
      std::isalpha(static_cast<unsigned char>(text[head + 1])))
    head += 2;
  return text.substr(0, head) + filling + text.substr(head);
}

bool is_align(char32_t c) {
  return c == '<' || c == '>' || c == '^' || c == '=';
}

PySpec parse_spec(std::string_view text) {
  PySpec spec;
  std::size_t pos = 0, behind_first = 0;
  const char32_t first = text.empty() ? 0 : next_code_point(text, behind_first);
  if (behind_first < text.size() && is_align(static_cast<unsigned char>(text[behind_first]))) {
    spec.fill = first;
    spec.align = text[behind_first];
    pos = behind_first + 1;
  } else if (is_align(first)) {
    spec.align = text[pos++];
  }
  const auto skip = [&](char c) { return pos < text.size() && text[pos] == c && ++pos; };
  for (const char sign : {'+', '-', ' '})
    if (skip(sign)) spec.sign = sign;
  spec.alternate = skip('#');
  if (skip('0') && !spec.align) {
    spec.fill = '0';
    spec.align = '=';
  }
  spec.width = parse_spec_number(text, pos);
  for (const char grouping : {',', '_'})
    if (skip(grouping)) spec.grouping = grouping;
  if (skip('.')) spec.precision = static_cast<int>(parse_spec_number(text, pos));
  if (pos < text.size()) spec.type = text[pos++];
  if (pos != text.size()) py_fail("Invalid format specifier " + py_quote(text));
  return spec;
}

[[noreturn]] void unknown_code(const PySpec& spec, const PyValue& value) {
  py_fail(std::string("Unknown format code '") + spec.type + "' for object of type '" + py_type_name(value) + "'");
}

std::string format_number(PyWork& work, const PyValue& value, const PySpec& spec) {
  const bool real_type = std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos && spec.type;
  if (value.is(PyKind::real) || real_type) {
    if (!real_type && spec.type) unknown_code(spec, value);
    return spec_pad(work, spec_real(*py_as_real(value), spec), spec, '>');
  }
  if (spec.type == 'c') {
    std::string text;
    append_code_point(text, static_cast<char32_t>(std::clamp<PyInt>(*value.integer(), 0, 0x10ffff)));
    return spec_pad(work, text, spec, '<');
  }
  if (spec.type && std::string_view("dboxX").find(spec.type) == std::string_view::npos) unknown_code(spec, value);
  if (spec.precision) py_fail("Precision not allowed in integer format specifier");
  return spec_pad(work, spec_integer(*value.integer(), spec), spec, '>');
}

/// Implements text.format(...).
class Formatter {
 public:
  Formatter(PyWork& work, const PyArgs& args) : work_(work), args_(args) {}

  std::string format(std::string_view text, int depth = 2) {
    if (depth == 0) py_fail("Max string recursion exceeded");
    std::string out;
    for (std::size_t pos = 0; pos < text.size();) {
      const char c = text[pos++];
      const bool doubled = pos < text.size() && text[pos] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        ++pos;
      } else if (c == '}') {
        py_fail("Single '}' encountered in format string");
      } else if (c == '{') {
        out += field(text, pos, depth);
      } else {
        out += c;
      }
      PyWork::require_fits(out.size());
    }
    work_.make(out.size());
    return out;
  }

 private:
  std::string field(std::string_view text, std::size_t& pos, int depth) {
    const std::size_t start = pos;
    int open = 1;
    for (; pos < text.size() && open > 0; ++pos) open += text[pos] == '{' ? 1 : text[pos] == '}' ? -1 : 0;
    if (open > 0) py_fail("expected '}' before end of string");
    const std::string_view inside = text.substr(start, pos - 1 - start);
    const std::size_t colon = std::min(inside.find(':'), inside.size());
    const std::size_t bang = inside.substr(0, colon).find('!');
    PyValue value = lookup(inside.substr(0, std::min(bang, colon)));
    if (bang != std::string_view::npos) {
      const std::string_view how = inside.substr(bang + 1, colon - bang - 1);
      if (how != "r" && how != "s" && how != "a") py_fail("Unknown conversion specifier " + std::string(how));
      value = how == "s" ? py_str(work_, value) : py_repr(work_, value);
    }
    const std::string spec = colon < inside.size() ? format(inside.substr(colon + 1), depth - 1) : "";
    return py_format(work_, value, spec);
  }

  /// "name", "0" or "" (the next one), followed by any number of .attribute and [key].
  PyValue lookup(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    PyValue value = first(path.substr(0, end));
    for (std::size_t pos = end; pos < path.size();) {
      const bool attribute = path[pos] == '.';
      const std::size_t stop =
          attribute ? std::min(path.find_first_of(".[", pos + 1), path.size()) : path.find(']', pos);
      if (stop == std::string_view::npos) py_fail("Missing ']' in format string");
      const std::string key(path.substr(pos + 1, stop - pos - 1));
      const auto index = attribute ? std::nullopt : py_parse_int(key);
      value = attribute ? py_attribute(value, key) : py_item(work_, value, index ? PyValue(*index) : PyValue(key));
      pos = attribute ? stop : stop + 1;
    }
    return value;
  }

  PyValue first(std::string_view name) {
    if (name.empty()) return positional(next_++);
    if (name.find_first_not_of("0123456789") == std::string_view::npos && name.size() < 9)
      return positional(static_cast<std::size_t>(*py_parse_int(name)));
    for (const auto& [key, value] : args_.keywords)
      if (key == name) return value;
    py_fail("KeyError: " + py_quote(name));
  }

  PyValue positional(std::size_t i) const {
    if (i >= args_.positional.size())
      py_fail("Replacement index " + std::to_string(i) + " out of range for positional args tuple");
    return args_.positional[i];
  }

  PyWork& work_;
  const PyArgs& args_;
  std::size_t next_ = 0;
};

class Percent {
 public:
  Percent(PyWork& work, std::string_view text, const PyValue& values) : work_(work), text_(text), values_(values) {}

  std::string run() {
    while (pos_ < text_.size()) {
      const std::size_t at = std::min(text_.find('%', pos_), text_.size());
      out_ += text_.substr(pos_, at - pos_);
      pos_ = at;
      if (pos_ < text_.size()) directive();
      PyWork::require_fits(out_.size());
    }
    work_.make(out_.size());
    const std::size_t given = values_.is(PyKind::tuple) ? values_.items().size() : 1;
    const bool mapping = values_.is(PyKind::dict) || values_.is(PyKind::list);
    if (used_ < given && !mapping) py_fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  PyValue next_value() {
    if (!values_.is(PyKind::tuple)) {
      if (used_++ > 0) py_fail("not enough arguments for format string");
      return values_;
    }
    if (used_ >= values_.items().size()) py_fail("not enough arguments for format string");
    return values_.items()[used_++];
  }

  PyValue named_value() {
    const std::size_t end = text_.find(')', pos_);
    if (end == std::string_view::npos) py_fail("incomplete format key");
    const std::string_view key = text_.substr(pos_ + 1, end - pos_ - 1);
    pos_ = end + 1;
    if (!values_.is(PyKind::dict)) py_fail("format requires a mapping");
    const PyValue* found = values_.dict().find_text(key);
    if (!found) py_fail("KeyError: " + py_quote(key));
    return *found;
  }

  std::size_t number_or_star(bool& negative) {
    if (peek() != '*') return parse_spec_number(text_, pos_);
    ++pos_;
    const auto given = next_value().integer();
    if (!given) py_fail("* wants int");
    negative = *given < 0;
    const std::string digits = py_int_text(negative ? -*given : *given);
    std::size_t at = 0;
    return parse_spec_number(digits, at);
  }

  void directive() {
    ++pos_;
    PySpec spec;
    std::optional<PyValue> value;
    if (peek() == '(') value = named_value();
    bool zero = false, left = false;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos && peek() != '\0'; ++pos_) {
      left |= peek() == '-';
      zero |= peek() == '0';
      spec.alternate |= peek() == '#';
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    }
    spec.width = number_or_star(left);
    bool negative = false;
    if (peek() == '.') {
      ++pos_;
      const std::size_t precision = number_or_star(negative);
      spec.precision = negative ? 0 : static_cast<int>(precision);
    }
    while (peek() == 'h' || peek() == 'l' || peek() == 'L') ++pos_;
    spec.type = peek();
    if (spec.type == '\0') py_fail("incomplete format");
    ++pos_;
    if (spec.type == '%') {
      out_ += '%';
      return;
    }
    spec.align = left ? '<' : '>';
    if (!value) value = next_value();
    convert(*value, spec, zero && !left);
  }

  void convert(const PyValue& value, PySpec& spec, bool zero) {
    const bool number = std::string_view("diuoxXeEfFgG").find(spec.type) != std::string_view::npos;
    if (number && zero) {
      spec.fill = '0';
      spec.align = '=';
    }
    if (!number) return convert_text(value, spec);
    if (std::string_view("eEfFgG").find(spec.type) != std::string_view::npos) {
      const auto real = py_as_real(value);
      if (!real) py_fail("must be real number, not " + py_type_name(value));
      out_ += spec_pad(work_, spec_real(*real, spec), spec, '>');
      return;
    }
    std::optional<PyInt> integer = value.integer();
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (decimal && value.is(PyKind::real) && std::fabs(value.real()) < 0x1p126)
      integer = static_cast<PyInt>(value.real());
    if (!integer)
      py_fail(std::string("%") + spec.type + " format: " + (decimal ? "a real number" : "an integer") +
              " is required, not " + py_type_name(value));
    if (decimal) spec.type = 'd';
    out_ += spec_pad(work_, spec_integer(*integer, spec), spec, '>');
  }

  void convert_text(const PyValue& value, const PySpec& spec) {
    std::string text;
    if (spec.type == 's')
      text = py_str(work_, value);
    else if (spec.type == 'r' || spec.type == 'a')
      text = py_repr(work_, value);
    else if (spec.type == 'c' && value.is_string())
      text = value.text();
    else if (spec.type == 'c' && value.integer() && *value.integer() >= 0 && *value.integer() < 0x110000)
      append_code_point(text, static_cast<char32_t>(*value.integer()));
    else
      py_fail(std::string("unsupported format character '") + spec.type + "'");
    if (spec.precision && spec.type != 'c') text.resize(byte_offset(text, static_cast<std::size_t>(*spec.precision)));
    out_ += spec_pad(work_, std::move(text), spec, '>');
  }

  PyWork& work_;
  std::string_view text_;
  const PyValue& values_;
  std::string out_;
  std::size_t pos_ = 0, used_ = 0;
};

}  // namespace

std::string py_format(PyWork& work, const PyValue& value, std::string_view spec_text) {
  if (spec_text.empty()) return py_str(work, value);
  const PySpec spec = parse_spec(spec_text);
  if (value.is(PyKind::real) || value.integer()) return format_number(work, value, spec);
  if (!value.is_string()) py_fail("unsupported format string passed to " + py_type_name(value) + ".__format__");
  if (spec.type && spec.type != 's') unknown_code(spec, value);
  std::string text = value.text();
  if (spec.precision) text.resize(byte_offset(text, static_cast<std::size_t>(*spec.precision)));
  return spec_pad(work, std::move(text), spec, '<');
}

PyValue py_format_text(PyWork& work, std::string_view text, const PyArgs& args) {
  return Formatter(work, args).format(text);
}

std::string py_percent(PyWork& work, const std::string& text, const PyValue& values) {
  return Percent(work, text, values).run();
}

}  // namespace qtrain
