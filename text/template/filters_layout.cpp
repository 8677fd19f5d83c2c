#include <algorithm>
#include <array>

#include "text/template/filters.h"
#include "text/template/py_ops.h"
#include "text/template/py_text.h"

namespace qtrain {
namespace {

using Run = TemplateRun;

const std::string& text_of(const PyValue& subject, std::string_view filter) {
  if (!subject.is_string()) py_fail(std::string(filter) + " needs a string, not " + py_type_name(subject));
  return subject.text();
}

PyValue indent(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("indent", args, {"width", "first", "blank"});
  const std::string margin =
      a[0] && a[0]->is_string()
          ? a.text(0)
          : std::string(static_cast<std::size_t>(std::clamp<PyInt>(a.integer(0, 4), 0, 10000)), ' ');
  const bool first = a.truth(1, false), blank = a.truth(2, false);
  const std::vector<std::string> lines = py_splitlines(text_of(subject, "indent") + "\n");
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool wanted = i == 0 ? first : blank || !lines[i].empty();
    run.work().make(margin.size() + lines[i].size());
    PyWork::require_fits(out.size());
    out += (i > 0 ? "\n" : "") + (wanted ? margin : "") + lines[i];
  }
  return subject.is_markup() ? PyValue::markup(std::move(out)) : PyValue(std::move(out));
}

PyValue truncate(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("truncate", args, {"length", "killwords", "end", "leeway"});
  const std::string end = a[2] ? a.text(2) : "...";
  const PyInt length = a.integer(0, 255), leeway = a.optional_integer(3).value_or(5);
  const auto end_size = static_cast<PyInt>(count_code_points(end));
  if (length < end_size) py_fail("expected length >= " + py_int_text(end_size) + ", got " + py_int_text(length));
  if (leeway < 0) py_fail("expected leeway >= 0, got " + py_int_text(leeway));
  const std::string& text = text_of(subject, "truncate");
  run.work().make(text.size());
  if (static_cast<PyInt>(count_code_points(text)) <= length + leeway) return subject;
  const std::string cut = text.substr(0, byte_offset(text, static_cast<std::size_t>(length - end_size)));
  return (a.truth(1, false) ? cut : py_rsplit(cut, " ", 1)[0]) + end;
}

PyValue center(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("center", args, {"width"});
  const PyValue text = py_str(run.work(), subject);
  return run.call(run.attribute(text, "center"), {.positional = {a.value(0, 80)}});
}

PyValue wordcount(Run& run, const PyValue& subject, const PyArgs&) {
  int words = 0;
  bool inside = false;
  for (const char32_t c : code_points(py_str(run.work(), subject))) {
    words += !inside && is_py_word(c);
    inside = is_py_word(c);
  }
  return words;
}

/// Tags and comments go, runs of whitespace become one space, and entities their characters.
PyValue striptags(Run& run, const PyValue& subject, const PyArgs&) {
  std::string text = py_str(run.work(), subject);
  for (const auto& [open, close] : {std::pair{"<!--", "-->"}, {"<", ">"}})
    for (std::size_t at = text.find(open); at != std::string::npos; at = text.find(open, at)) {
      const std::size_t end = text.find(close, at);
      if (end == std::string::npos) break;
      text.erase(at, end + std::string_view(close).size() - at);
      run.work().make(text.size());
    }
  std::string out;
  for (const std::string& word : py_split(text, std::nullopt, -1)) out += (out.empty() ? "" : " ") + word;
  for (const auto& [entity, c] :
       {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&#39;", "'"}, {"&#34;", "\""}, {"&quot;", "\""}, {"&amp;", "&"}})
    out = py_replace(run.work(), out, entity, c);
  return out;
}

PyValue filesizeformat(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("filesizeformat", args, {"binary"});
  const bool binary = a.truth(0, false);
  std::optional<double> bytes = subject.is_string() ? py_parse_real(subject.text()) : py_as_real(subject);
  if (!bytes) py_fail("filesizeformat needs a number");
  const double base = binary ? 1024.0 : 1000.0;
  if (*bytes == 1.0) return "1 Byte";
  if (*bytes < base) return py_int_text(static_cast<PyInt>(*bytes)) + " Bytes";
  constexpr std::string_view prefixes = "kMGTPEZY";
  double unit = base * base;
  std::size_t i = 0;
  while (i + 1 < prefixes.size() && *bytes >= unit) {
    unit *= base;
    ++i;
  }
  const std::string prefix =
      binary ? std::string(1, i == 0 ? 'K' : prefixes[i]) + "iB" : std::string(1, prefixes[i]) + "B";
  return py_format(run.work(), base * *bytes / unit, ".1f") + " " + prefix;
}

PyValue xmlattr(Run& run, const PyValue& subject, const PyArgs& args) {
  const PyBound a("xmlattr", args, {"autospace"});
  if (!subject.is(PyKind::dict)) py_fail("xmlattr needs a mapping");
  std::string out;
  for (const auto& [key, value] : subject.dict().entries) {
    if (value.is(PyKind::none) || value.is(PyKind::undefined)) continue;
    if (!key.is_string() || key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      py_fail("Invalid character in attribute name: " + py_repr(run.work(), key));
    const std::string text = py_str(run.work(), value);
    out += (out.empty() ? "" : " ") + html_escape(key.text()) + "=\"" + (value.is_markup() ? text : html_escape(text)) +
           "\"";
  }
  return a.truth(0, true) && !out.empty() ? " " + out : out;
}

constexpr auto kLayoutFilters = std::to_array<FilterEntry>({{"indent", indent},
                                                            {"truncate", truncate},
                                                            {"center", center},
                                                            {"wordcount", wordcount},
                                                            {"striptags", striptags},
                                                            {"filesizeformat", filesizeformat},
                                                            {"xmlattr", xmlattr}});

}  // namespace

std::span<const FilterEntry> layout_filters() {
  return kLayoutFilters;
}

}  // namespace qtrain
