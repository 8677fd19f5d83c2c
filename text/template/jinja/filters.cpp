#include "text/template/jinja/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "text/template/jinja/sequence_filters.h"
#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/format.h"
#include "text/template/python/functions.h"
#include "text/template/python/json.h"
#include "text/template/python/numbers.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/text.h"

namespace qtrain {
namespace {

std::optional<PyInt> whole(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) >= 0x1p126) py_fail("an integer beyond 127 bits");
  return static_cast<PyInt>(d);
}

/// A text is copied, stripped, and read more than once.
void read_number(PyWork& work, const PyValue& subject) {
  if (subject.is_string()) work.read(subject.text().size() * 32);
}

PyValue to_int(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("int", args, {"default", "base"});
  read_number(work, subject);
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  if (const auto i = subject.integer()) return *i;
  std::optional<double> real;
  if (subject.is(PyKind::real)) {
    if (std::isinf(subject.real())) py_fail("cannot convert float infinity to integer");
    real = subject.real();
  } else if (subject.is_string()) {
    if (const auto i = py_parse_int(subject.text(), static_cast<int>(py_clamp(a.integer(1, 10))))) return *i;
    real = py_parse_real(subject.text());
  }
  const auto i = real ? whole(*real) : std::nullopt;
  return i ? PyValue(*i) : a.value(0, 0);
}

PyValue to_float(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("float", args, {"default"});
  read_number(work, subject);
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  const auto real = subject.is_string() ? py_parse_real(subject.text()) : py_as_real(subject);
  return real ? PyValue(*real) : a.value(0, 0.0);
}

PyValue absolute(PyWork&, const PyValue& subject, const PyArgs& args) {
  const PyBound a("abs", args, {});
  if (subject.is(PyKind::real)) return std::fabs(subject.real());
  const auto i = subject.integer();
  if (!i) py_fail("bad operand type for abs(): '" + py_type_name(subject) + "'");
  return *i < 0 ? py_unary(PyOp::neg, subject) : PyValue(*i);
}

/// Python's round of a float: the nearest decimal to its exact value, ties to even.
double round_real(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    if (digits < -308) return 0.0;
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[700];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return std::strtod(buffer, nullptr);
}

PyInt round_int(PyInt value, int digits) {
  if (digits >= 0) return value;
  if (digits < -37) return 0;
  PyInt unit = 1;
  for (int i = 0; i > digits; --i) unit *= 10;
  const PyInt rest = ((value % unit) + unit) % unit, down = value - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
  return up ? down + unit : down;
}

PyValue round(PyWork&, const PyValue& subject, const PyArgs& args) {
  const PyBound a("round", args, {"precision", "method"});
  const std::string method = a[1] ? a.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") py_fail("method must be common, ceil or floor");
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  const auto real = py_as_real(subject);
  if (!real) py_fail("type " + py_type_name(subject) + " doesn't define __round__ method");
  const auto digits = static_cast<int>(std::clamp<std::int64_t>(py_clamp(a.integer(0, 0)), -400, 400));
  if (method == "common") {
    if (const auto i = subject.integer()) return round_int(*i, digits);
    return round_real(*real, digits);
  }
  const double unit = std::pow(10.0, digits);
  const double scaled = *real * unit;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

/// soft_str: markup stays markup, other values become str(value).
PyValue soft(PyWork& work, const PyValue& value) {
  return value.is_string() ? value : PyValue(py_str(work, value));
}

PyValue like(const PyValue& subject, std::string text) {
  return subject.is_markup() ? PyValue::markup(std::move(text)) : PyValue(std::move(text));
}

template <std::string (*change)(std::string_view)>
PyValue changed(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("filter", args, {});
  const PyValue text = soft(work, subject);
  work.make(text.text().size());
  work.read(text.text().size() * 64);
  return like(text, change(text.text()));
}

/// Words start after spaces, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const std::size_t first = byte_offset(word, 1);
    out += py_upper(word.substr(0, first)) + py_lower(word.substr(first));
    word.clear();
  };
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = next_code_point(text, pos);
    const bool border = is_py_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (border) flush();
    append_code_point(border ? out : word, c);
  }
  flush();
  return out;
}

PyValue trim(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("trim", args, {"chars"});
  const PyValue text = soft(work, subject);
  work.make(text.text().size());
  work.read(a.optional_text(0).value_or("").size() * 64);
  return like(text, std::string(py_strip(text.text(), Ends::both, a.optional_text(0))));
}

PyValue replace(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("replace", args, {"old", "new", "count"}, 2);
  const auto text = [&](const PyValue& v) { return py_str(work, v); };
  return py_replace(work, text(subject), text(*a[0]), text(*a[1]), py_clamp(a.optional_integer(2).value_or(-1)));
}

PyValue string(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("string", args, {});
  return soft(work, subject);
}

PyValue escape(PyWork& work, const PyValue& subject, const PyArgs&) {
  if (subject.is_markup()) return subject;
  const std::string text = py_str(work, subject);
  PyWork::require_fits(text.size() * 5);
  std::string escaped = html_escape(text);
  work.make(escaped.size() + text.size());
  return PyValue::markup(std::move(escaped));
}

PyValue safe(PyWork& work, const PyValue& subject, const PyArgs&) {
  std::string text = py_str(work, subject);
  work.make(text.size());
  return PyValue::markup(std::move(text));
}

PyValue format(PyWork& work, const PyValue& subject, const PyArgs& args) {
  if (!args.positional.empty() && !args.keywords.empty())
    py_fail("can't handle positional and keyword arguments at the same time");
  PyValue values = PyValue::tuple(args.positional);
  if (!args.keywords.empty()) {
    PyDict named;
    for (const auto& [key, value] : args.keywords) named.set(work, key, value);
    values = std::move(named);
  }
  return py_percent(work, py_str(work, subject), values);
}

PyValue tojson(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  DumpOptions options{.ensure_ascii = a.truth(0, false), .sort_keys = a.truth(3, false)};
  if (a[1] && a[1]->is_string())
    options.indent = a[1]->text();
  else if (const auto width = a.optional_integer(1))
    options.indent = std::string(static_cast<std::size_t>(std::clamp<PyInt>(*width, 0, 1000)), ' ');
  if (options.indent) options.item_separator = ",";
  if (a[2] && !a[2]->is(PyKind::none)) {
    const PyItems separators = py_list(work, *a[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      py_fail("tojson() separators must be two strings");
    options.item_separator = separators[0].text();
    options.key_separator = separators[1].text();
  }
  return py_json_dumps(work, subject, options);
}

const std::string& text_of(const PyValue& subject, std::string_view filter) {
  if (!subject.is_string()) py_fail(std::string(filter) + " needs a string, not " + py_type_name(subject));
  return subject.text();
}

PyValue indent(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("indent", args, {"width", "first", "blank"});
  const std::string margin =
      a[0] && a[0]->is_string()
          ? a.text(0)
          : std::string(static_cast<std::size_t>(std::clamp<PyInt>(a.integer(0, 4), 0, 10000)), ' ');
  const bool first = a.truth(1, false), blank = a.truth(2, false);
  work.make(text_of(subject, "indent").size());
  const std::vector<std::string> lines = py_splitlines(text_of(subject, "indent") + "\n");
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool wanted = i == 0 ? first : blank || !lines[i].empty();
    work.make(margin.size() + lines[i].size());
    PyWork::require_fits(out.size());
    out += (i > 0 ? "\n" : "") + (wanted ? margin : "") + lines[i];
  }
  return subject.is_markup() ? PyValue::markup(std::move(out)) : PyValue(std::move(out));
}

PyValue truncate(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("truncate", args, {"length", "killwords", "end", "leeway"});
  const std::string end = a[2] ? a.text(2) : "...";
  const PyInt length = a.integer(0, 255), leeway = a.optional_integer(3).value_or(5);
  const auto end_size = static_cast<PyInt>(count_code_points(end));
  if (length < end_size) py_fail("expected length >= " + py_int_text(end_size) + ", got " + py_int_text(length));
  if (leeway < 0) py_fail("expected leeway >= 0, got " + py_int_text(leeway));
  const std::string& text = text_of(subject, "truncate");
  work.make(text.size());
  if (static_cast<PyInt>(count_code_points(text)) <= length + leeway) return subject;
  const std::string cut = text.substr(0, byte_offset(text, static_cast<std::size_t>(length - end_size)));
  return (a.truth(1, false) ? cut : py_rsplit(cut, " ", 1)[0]) + end;
}

constexpr auto kFilters = std::to_array<FilterEntry>({{"int", to_int},
                                                      {"float", to_float},
                                                      {"abs", absolute},
                                                      {"round", round},
                                                      {"indent", indent},
                                                      {"truncate", truncate},
                                                      {"upper", changed<py_upper>},
                                                      {"lower", changed<py_lower>},
                                                      {"capitalize", changed<py_capitalize>},
                                                      {"title", changed<title_words>},
                                                      {"trim", trim},
                                                      {"replace", replace},
                                                      {"string", string},
                                                      {"e", escape},
                                                      {"escape", escape},
                                                      {"safe", safe},
                                                      {"format", format},
                                                      {"tojson", tojson}});

FilterFunction find_filter(std::string_view name) {
  for (const auto& table : {std::span<const FilterEntry>(kFilters), sequence_filters()})
    for (const FilterEntry& f : table)
      if (f.name == name) return f.function;
  return nullptr;
}

}  // namespace

bool is_filter_name(std::string_view name) {
  return find_filter(name) != nullptr;
}

PyValue apply_filter(PyWork& work, std::string_view name, const PyValue& subject, const PyArgs& args) {
  const FilterFunction filter = find_filter(name);
  if (!filter) py_fail("No filter named '" + std::string(name) + "'");
  work.step();
  return filter(work, subject, args);
}

}  // namespace qtrain
