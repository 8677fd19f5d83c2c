#include "text/template/python/repr.h"

#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "text/template/python/characters.h"

namespace qtrain {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void append_hex(std::string& out, char32_t c, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[(c >> shift) & 15];
}

/// str.isprintable for one character.
bool is_printable(char32_t c) {
  if (c < 0x7f) return c >= 0x20;
  const auto k = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return k != UTF8PROC_CATEGORY_CN && (k < UTF8PROC_CATEGORY_ZS || k > UTF8PROC_CATEGORY_CO);
}

void append_escaped(std::string& out, char32_t c) {
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (c < 0x100) {
    out += "\\x";
    append_hex(out, c, 2);
  } else if (c < 0x10000) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    out += "\\U";
    append_hex(out, c, 8);
  }
}

class Printer {
 public:
  explicit Printer(PyWork& work) : work_(work) {}

  void print(const PyValue& value) {
    PyWork::Level level(work_);
    switch (value.kind()) {
      case PyKind::undefined: return put("Undefined");
      case PyKind::none: return put("None");
      case PyKind::boolean: return put(value.boolean() ? "True" : "False");
      case PyKind::integer: return put(py_int_text(*value.integer()));
      case PyKind::real: return put(py_real_text(value.real()));
      case PyKind::string:
        return put(value.is_markup() ? "Markup(" + py_quote(value.text()) + ")" : py_quote(value.text()));
      case PyKind::list:
      case PyKind::tuple: return print_items(value);
      case PyKind::dict: return print_dict(value.dict());
      case PyKind::object: return put(value.object().repr(work_));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view piece) {
    work_.require_fits(out_.size() + piece.size());
    work_.make(piece.size());
    out_ += piece;
  }

  void print_items(const PyValue& value) {
    const PyItems& items = value.items();
    const bool tuple = value.is(PyKind::tuple);
    put(tuple ? "(" : "[");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(", ");
      print(items[i]);
    }
    if (tuple && items.size() == 1) put(",");
    put(tuple ? ")" : "]");
  }

  void print_dict(const PyDict& dict) {
    put("{");
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) put(", ");
      print(dict.entries[i].first);
      put(": ");
      print(dict.entries[i].second);
    }
    put("}");
  }

  PyWork& work_;
  std::string out_;
};

}  // namespace

std::string py_quote(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, pos);
    if (c == '\\' || c == static_cast<unsigned char>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (is_printable(c)) {
      append_code_point(out, c);
    } else {
      append_escaped(out, c);
    }
  }
  return out += quote;
}

std::string py_real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string digits(buffer, end);  // -d.ddde+xx, the shortest form that parses to the same value
  const std::size_t e = digits.find('e');
  const int exponent = std::stoi(digits.substr(e + 1));
  if (exponent < -4 || exponent >= 16) {
    return digits.substr(0, e) + (exponent < 0 ? "e-" : "e+") + (std::abs(exponent) < 10 ? "0" : "") +
           std::to_string(std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string text(buffer, fixed);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string py_int_text(PyInt value) {
  if (value == 0) return "0";
  // Uses negative remainders so that the smallest value works too.
  std::string digits;
  for (PyInt rest = value; rest != 0; rest /= 10) {
    const int digit = static_cast<int>(rest % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
  }
  if (value < 0) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

std::string py_repr(PyWork& work, const PyValue& value) {
  Printer printer(work);
  printer.print(value);
  return printer.take();
}

std::string py_str(PyWork& work, const PyValue& value) {
  if (value.is_string()) {
    work.read(value.text().size());
    return value.text();
  }
  if (value.is(PyKind::undefined)) return "";
  return py_repr(work, value);
}

}  // namespace qtrain
