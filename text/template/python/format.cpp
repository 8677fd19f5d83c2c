#include "text/template/python/format.h"

#include <algorithm>

#include "text/template/python/arithmetic.h"
#include "text/template/python/attributes.h"
#include "text/template/python/code_points.h"
#include "text/template/python/error.h"
#include "text/template/python/format_spec.h"
#include "text/template/python/parse_number.h"
#include "text/template/python/repr.h"

namespace qtrain {
namespace {

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

}  // namespace qtrain
