#include "text/template/python/methods.h"

#include <algorithm>
#include <array>

#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/format.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/text.h"

namespace qtrain {
namespace {

constexpr std::size_t kReadsPerChange = 64;  // cost of a lookup in Unicode's tables per character

template <PyView::Part part>
PyValue view(PyWork&, const PyValue& self, const PyArgs& args) {
  const PyBound a("dict view", args, {});
  return std::make_shared<PyView>(self, part);
}

PyValue get(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("get", args, {"key", "default"}, 1);
  const PyValue* found = self.dict().find(work, *a[0]);
  return found ? *found : a.value(1);
}

PyValue copy(PyWork&, const PyValue& self, const PyArgs&) {
  return self;
}

PyValue index(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("index", args, {"value"}, 1);
  for (std::size_t i = 0; i < self.items().size(); ++i)
    if (py_equal(work, self.items()[i], *a[0])) return i;
  py_fail(py_repr(work, *a[0]) + " is not in list");
}

PyValue count_items(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("count", args, {"value"}, 1);
  return static_cast<int>(std::count_if(self.items().begin(), self.items().end(),
                                        [&](const PyValue& v) { return py_equal(work, v, *a[0]); }));
}

constexpr auto kDict = std::to_array<PyFunctionEntry>({{"items", view<PyView::Part::items>},
                                                       {"keys", view<PyView::Part::keys>},
                                                       {"values", view<PyView::Part::values>},
                                                       {"get", get},
                                                       {"copy", copy}});
constexpr auto kList = std::to_array<PyFunctionEntry>({{"index", index}, {"count", count_items}, {"copy", copy}});

/// The result of a method on a text is as safe as the text itself.
PyValue like(const PyValue& self, std::string text) {
  return self.is_markup() ? PyValue::markup(std::move(text)) : PyValue(std::move(text));
}

PyValue list_of(PyWork& work, std::vector<std::string> parts) {
  work.make(parts.size() * sizeof(PyValue));
  return PyValue::list(PyItems(parts.begin(), parts.end()));
}

template <Ends ends>
PyValue strip(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("strip", args, {"chars"});
  work.make(self.text().size());
  work.read(a.optional_text(0).value_or("").size() * kReadsPerChange);
  return like(self, std::string(py_strip(self.text(), ends, a.optional_text(0))));
}

template <auto split>
PyValue split_with(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("split", args, {"sep", "maxsplit"});
  work.make(self.text().size());
  return list_of(work, split(self.text(), a.optional_text(0), py_clamp(a.integer(1, -1))));
}

PyValue splitlines(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("splitlines", args, {"keepends"});
  work.make(self.text().size());
  return list_of(work, py_splitlines(self.text(), a.truth(0, false) ? LineEnds::keep : LineEnds::drop));
}

template <std::string (*change)(std::string_view)>
PyValue changed(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("str method", args, {});
  work.make(self.text().size());
  work.read(self.text().size() * kReadsPerChange);
  return like(self, change(self.text()));
}

/// The part of a text between code points `start` and `end` of the call, and its byte offset.
std::pair<std::string_view, std::size_t> window(const std::string& text, const PyBound& a) {
  const PyInt size = static_cast<PyInt>(count_code_points(text));
  const auto bound = [&](std::size_t i, PyInt otherwise) {
    const PyInt b = a.optional_integer(i).value_or(otherwise);
    return static_cast<std::size_t>(std::clamp<PyInt>(b < 0 ? b + size : b, 0, size));
  };
  const std::size_t from = byte_offset(text, bound(1, 0)), to = byte_offset(text, bound(2, size));
  return {std::string_view(text).substr(from, to > from ? to - from : 0), from};
}

enum class Side : std::uint8_t { start, end };
template <Side side>
PyValue has_affix(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a(side == Side::start ? "startswith" : "endswith", args, {"prefix", "start", "end"}, 1);
  work.read(self.text().size() * (a[1] || a[2] ? 8 : 1));
  const std::string_view text = window(self.text(), a).first;
  const auto matches = [&](const PyValue& affix) {
    if (!affix.is_string()) py_fail("first arg must be str or a tuple of str, not " + py_type_name(affix));
    work.step();
    work.read(affix.text().size());
    return side == Side::start ? text.starts_with(affix.text()) : text.ends_with(affix.text());
  };
  if (!a[0]->is(PyKind::tuple)) return matches(*a[0]);
  return std::any_of(a[0]->items().begin(), a[0]->items().end(), matches);
}

enum class Missing : std::uint8_t { minus_one, error };
template <Side side, Missing missing>
PyValue find(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("find", args, {"sub", "start", "end"}, 1);
  work.make(self.text().size());
  const auto [text, from] = window(self.text(), a);
  const std::size_t at = side == Side::start ? py_find(work, text, a.text(0)) : py_rfind(work, text, a.text(0));
  if (at != std::string_view::npos) return count_code_points(std::string_view(self.text()).substr(0, from + at));
  if (missing == Missing::error) py_fail("substring not found");
  return -1;
}

PyValue count(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("count", args, {"sub", "start", "end"}, 1);
  work.make(self.text().size());
  const std::string_view text = window(self.text(), a).first;
  const std::string& sub = a.text(0);
  if (sub.empty()) return count_code_points(text) + 1;
  return py_count(work, text, sub);
}

PyValue replace(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("replace", args, {"old", "new", "count"}, 2);
  const bool escapes = self.is_markup() && !a[1]->is_markup();
  const std::string fresh = escapes ? html_escape(a.text(1)) : a.text(1);
  return like(self, py_replace(work, self.text(), a.text(0), fresh, py_clamp(a.integer(2, -1))));
}

PyValue join(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("join", args, {"iterable"}, 1);
  const PyNext next = py_iterate(work, *a[0]);
  std::string text;
  for (std::size_t i = 0; auto item = next(); ++i) {
    if (!item->is_string())
      py_fail("sequence item " + std::to_string(i) + ": expected str instance, " + py_type_name(*item) + " found");
    work.make((i ? self.text().size() : 0) + item->text().size());
    PyWork::require_fits(text.size());
    text += (i ? self.text() : "") + item->text();
  }
  return like(self, std::move(text));
}

enum class Place : std::uint8_t { left, right, center };
template <Place place>
PyValue justify(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("ljust", args, {"width", "fillchar"}, 1);
  const std::string fill = a[1] ? a.text(1) : " ";
  work.read(self.text().size() + fill.size());
  if (count_code_points(fill) != 1) py_fail("The fill character must be exactly one character long");
  const auto size = static_cast<PyInt>(count_code_points(self.text()));
  const PyInt width = std::min<PyInt>(a.integer(0), PyInt{1} << 40), pad = width - size;
  if (pad <= 0) return self;
  work.make(static_cast<std::size_t>(width) * fill.size());
  const PyInt left = place == Place::left ? 0 : place == Place::right ? pad : pad / 2 + (pad & width & 1);
  std::string text;
  for (PyInt i = 0; i < left; ++i) text += fill;
  text += self.text();
  for (PyInt i = left; i < pad; ++i) text += fill;
  return like(self, std::move(text));
}

PyValue zfill(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("zfill", args, {"width"}, 1);
  work.read(self.text().size());
  const auto size = static_cast<PyInt>(count_code_points(self.text()));
  const PyInt pad = std::min<PyInt>(a.integer(0), PyInt{1} << 40) - size;
  if (pad <= 0) return self;
  work.make(static_cast<std::size_t>(pad));
  std::string text = self.text();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return text.insert(sign ? 1 : 0, static_cast<std::size_t>(pad), '0');
}

/// str.isdigit and similar: at least one character, and all of the kind.
template <bool (*kind)(char32_t)>
PyValue all_are(PyWork& work, const PyValue& self, const PyArgs&) {
  work.make(self.text().size());
  work.read(self.text().size() * kReadsPerChange);
  const std::u32string points = code_points(self.text());
  return !points.empty() && std::all_of(points.begin(), points.end(), kind);
}

bool is_alnum(char32_t c) {
  return is_py_alpha(c) || is_py_digit(c);
}

PyValue is_ascii_text(PyWork& work, const PyValue& self, const PyArgs&) {
  work.read(self.text().size());
  return std::ranges::all_of(self.text(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

template <bool upper>
PyValue is_cased(PyWork& work, const PyValue& self, const PyArgs&) {
  work.read(self.text().size() * kReadsPerChange);
  return upper ? py_is_upper(self.text()) : py_is_lower(self.text());
}

template <Side side>
PyValue partition(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("partition", args, {"sep"}, 1);
  const std::string &text = self.text(), &sep = a.text(0);
  if (sep.empty()) py_fail("empty separator");
  work.make(text.size());
  const std::size_t at = side == Side::start ? py_find(work, text, sep) : py_rfind(work, text, sep);
  if (at != std::string::npos) return PyValue::tuple({text.substr(0, at), sep, text.substr(at + sep.size())});
  return side == Side::start ? PyValue::tuple({self, "", ""}) : PyValue::tuple({"", "", self});
}

template <Side side>
PyValue remove_affix(PyWork& work, const PyValue& self, const PyArgs& args) {
  const PyBound a("removeprefix", args, {"affix"}, 1);
  const std::string &text = self.text(), &affix = a.text(0);
  work.make(text.size());
  if (side == Side::start) return text.starts_with(affix) ? like(self, text.substr(affix.size())) : self;
  return text.ends_with(affix) ? like(self, text.substr(0, text.size() - affix.size())) : self;
}

PyValue format(PyWork& work, const PyValue& self, const PyArgs& args) {
  return py_format_text(work, self.text(), args);
}

constexpr auto kStr = std::to_array<PyFunctionEntry>({
    {"strip", strip<Ends::both>},
    {"lstrip", strip<Ends::left>},
    {"rstrip", strip<Ends::right>},
    {"split", split_with<py_split>},
    {"rsplit", split_with<py_rsplit>},
    {"splitlines", splitlines},
    {"upper", changed<py_upper>},
    {"lower", changed<py_lower>},
    {"casefold", changed<py_lower>},
    {"title", changed<py_title>},
    {"capitalize", changed<py_capitalize>},
    {"startswith", has_affix<Side::start>},
    {"endswith", has_affix<Side::end>},
    {"find", find<Side::start, Missing::minus_one>},
    {"rfind", find<Side::end, Missing::minus_one>},
    {"index", find<Side::start, Missing::error>},
    {"rindex", find<Side::end, Missing::error>},
    {"count", count},
    {"replace", replace},
    {"join", join},
    {"ljust", justify<Place::left>},
    {"rjust", justify<Place::right>},
    {"center", justify<Place::center>},
    {"zfill", zfill},
    {"isdigit", all_are<is_py_digit>},
    {"isdecimal", all_are<is_py_decimal>},
    {"isnumeric", all_are<is_py_digit>},
    {"isalpha", all_are<is_py_alpha>},
    {"isalnum", all_are<is_alnum>},
    {"isspace", all_are<is_py_space>},
    {"isascii", is_ascii_text},
    {"isupper", is_cased<true>},
    {"islower", is_cased<false>},
    {"partition", partition<Side::start>},
    {"rpartition", partition<Side::end>},
    {"removeprefix", remove_affix<Side::start>},
    {"removesuffix", remove_affix<Side::end>},
    {"format", format},
});

}  // namespace

std::span<const PyFunctionEntry> dict_methods() {
  return kDict;
}

std::span<const PyFunctionEntry> list_methods() {
  return kList;
}

std::span<const PyFunctionEntry> tuple_methods() {
  return list_methods().first(2);
}

std::span<const PyFunctionEntry> str_methods() {
  return kStr;
}

}  // namespace qtrain
