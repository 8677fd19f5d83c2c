#include "text/template/python/percent.h"

#include <cmath>

#include "text/template/python/characters.h"
#include "text/template/python/format.h"
#include "text/template/python/numbers.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

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

std::string py_percent(PyWork& work, const std::string& text, const PyValue& values) {
  return Percent(work, text, values).run();
}

}  // namespace qtrain
