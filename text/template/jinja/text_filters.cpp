#include "text/template/jinja/text_filters.h"

#include <algorithm>
#include <array>

#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/functions.h"
#include "text/template/python/json.h"
#include "text/template/python/percent.h"
#include "text/template/python/repr.h"
#include "text/template/python/text.h"

namespace qtrain {
namespace {

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

constexpr auto kTextFilters = std::to_array<FilterEntry>({{"indent", indent},
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

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

}  // namespace qtrain
