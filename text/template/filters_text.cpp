#include <algorithm>
#include <array>

#include "text/template/filters.h"
#include "text/template/py_ops.h"
#include "text/template/py_text.h"

namespace qtrain {

std::string html_escape(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  return out;
}

namespace {

using Run = TemplateRun;

/// soft_str: text keeps being markup, anything else becomes str(value).
PyValue soft(Run& run, const PyValue& value) {
  return value.is_string() ? value : PyValue(py_str(run.work(), value));
}

PyValue like(const PyValue& subject, std::string text) {
  return subject.is_markup() ? PyValue::markup(std::move(text)) : PyValue(std::move(text));
}

template <std::string (*change)(std::string_view)>
PyValue changed(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("filter", args, {});
  const PyValue text = soft(run, subject);
  run.work().make(text.text().size());
  return like(text, change(text.text()));
}

/// Words begin behind spaces, hyphens and opening brackets.
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

PyValue trim(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("trim", args, {"chars"});
  const PyValue text = soft(run, subject);
  run.work().make(text.text().size());
  return like(text, std::string(py_strip(text.text(), Ends::both, a.optional_text(0))));
}

PyValue replace(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("replace", args, {"old", "new", "count"}, 2);
  const auto text = [&](const PyValue& v) { return py_str(run.work(), v); };
  return py_replace(run.work(), text(subject), text(*a[0]), text(*a[1]), py_clamp(a.optional_integer(2).value_or(-1)));
}

PyValue string(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("string", args, {});
  return soft(run, subject);
}

PyValue escape(Run& run, const PyValue& subject, const PyArgs&) {
  if (subject.is_markup()) return subject;
  return PyValue::markup(html_escape(py_str(run.work(), subject)));
}

PyValue force_escape(Run& run, const PyValue& subject, const PyArgs&) {
  return PyValue::markup(html_escape(py_str(run.work(), subject)));
}

PyValue safe(Run& run, const PyValue& subject, const PyArgs&) {
  return PyValue::markup(py_str(run.work(), subject));
}

PyValue format(Run& run, const PyValue& subject, const PyArgs& args) {
  if (!args.positional.empty() && !args.keywords.empty())
    py_fail("can't handle positional and keyword arguments at the same time");
  PyValue values = PyValue::tuple(args.positional);
  if (!args.keywords.empty()) {
    PyDict named;
    for (const auto& [key, value] : args.keywords) named.set(run.work(), key, value);
    values = std::move(named);
  }
  return py_percent(run.work(), py_str(run.work(), subject), values);
}

PyValue tojson(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  DumpOptions options{.ensure_ascii = a.truth(0, false), .sort_keys = a.truth(3, false)};
  if (a[1] && a[1]->is_string())
    options.indent = a[1]->text();
  else if (const auto width = a.optional_integer(1))
    options.indent = std::string(static_cast<std::size_t>(std::clamp<PyInt>(*width, 0, 1000)), ' ');
  if (options.indent) options.item_separator = ",";
  if (a[2] && !a[2]->is(PyKind::none)) {
    const PyItems separators = py_list(run.work(), *a[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      py_fail("tojson() separators must be two strings");
    options.item_separator = separators[0].text();
    options.key_separator = separators[1].text();
  }
  return py_json_dumps(run.work(), subject, options);
}

enum class UrlPart : std::uint8_t { path, query };
/// Percent-encoded as urllib's quote does; in queries, '/' too and '+' for a space.
std::string url_quote(std::string_view text, UrlPart part) {
  const bool query = part == UrlPart::query;
  constexpr char hex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if ((u < 0x80 && (is_py_alpha(u) || is_py_decimal(u))) ||
        std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query))
      out += c;
    else if (c == ' ' && query)
      out += '+';
    else
      out += std::string("%") + hex[u >> 4] + hex[u & 15];
  }
  return out;
}

PyValue urlencode(Run& run, const PyValue& subject, const PyArgs&) {
  const auto text = [&](const PyValue& v) { return py_str(run.work(), v); };
  if (subject.is_string() || !py_is_iterable(subject)) return url_quote(text(subject), UrlPart::path);
  std::string out;
  PyItems pairs;
  if (subject.is(PyKind::dict))
    for (const auto& [key, value] : subject.dict().entries) pairs.push_back(PyValue::tuple({key, value}));
  else
    pairs = py_list(run.work(), subject);
  for (const PyValue& pair : pairs) {
    const PyItems items = py_list(run.work(), pair);
    if (items.size() != 2) py_fail("urlencode needs pairs of key and value");
    out += (out.empty() ? "" : "&") + url_quote(text(items[0]), UrlPart::query) + "=" +
           url_quote(text(items[1]), UrlPart::query);
  }
  return out;
}

constexpr auto kTextFilters = std::to_array<FilterEntry>({{"upper", changed<py_upper>},
                                                          {"lower", changed<py_lower>},
                                                          {"capitalize", changed<py_capitalize>},
                                                          {"title", changed<title_words>},
                                                          {"trim", trim},
                                                          {"replace", replace},
                                                          {"string", string},
                                                          {"e", escape},
                                                          {"escape", escape},
                                                          {"forceescape", force_escape},
                                                          {"safe", safe},
                                                          {"format", format},
                                                          {"tojson", tojson},
                                                          {"urlencode", urlencode}});

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kTextFilters;
}

}  // namespace qtrain
