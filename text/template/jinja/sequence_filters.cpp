#include "text/template/jinja/sequence_filters.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "text/template/jinja/builtins.h"
#include "text/template/python/access.h"
#include "text/template/python/characters.h"
#include "text/template/python/functions.h"
#include "text/template/python/numbers.h"
#include "text/template/python/operators.h"
#include "text/template/python/repr.h"
#include "text/template/python/text.h"

namespace qtrain {
namespace {

using PyGetter = std::function<PyValue(const PyValue&)>;

std::vector<PyValue> attribute_parts(const PyValue& attribute) {
  if (attribute.is(PyKind::none)) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<PyValue> parts;
  for (const std::string& part : py_split(attribute.text(), ".", -1)) {
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    parts.push_back(digits ? PyValue(*py_parse_int(part)) : PyValue(part));
  }
  return parts;
}

enum class Folding : std::uint8_t { none, ignore_case };
/// value -> value.a.b for the attribute "a.b" (numeric parts are indices); the value itself for None. `otherwise`
/// replaces undefined values if given and not None.
PyGetter attribute_getter(PyWork& work, const PyValue& attribute, Folding folding, const PyValue* otherwise = nullptr) {
  PyValue replacement = otherwise ? *otherwise : PyValue();
  return [&work, parts = attribute_parts(attribute), folding, replacement](PyValue value) -> PyValue {
    for (const PyValue& part : parts) {
      value = py_item(work, value, part);
      if (value.is(PyKind::undefined) && !replacement.is(PyKind::none)) value = replacement;
    }
    if (folding == Folding::none || !value.is_string()) return value;
    work.make(value.text().size());
    work.read(value.text().size() * 64);
    return PyValue(py_lower(value.text()));
  };
}

PyValue default_value(PyWork&, const PyValue& subject, const PyArgs& args) {
  const PyBound a("default", args, {"default_value", "boolean"});
  const bool replace = subject.is(PyKind::undefined) || (a.truth(1, false) && !py_truth(subject));
  return replace ? a.value(0, "") : subject;
}

PyValue length(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("length", args, {});
  if (subject.is_string()) work.read(subject.text().size());
  const auto n = py_length(subject);
  if (!n) py_fail("object of type '" + py_type_name(subject) + "' has no len()");
  return *n;
}

PyValue first(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("first", args, {});
  const auto item = py_iterate(work, subject)();
  return item ? *item : PyValue::undefined("No first item, sequence was empty.");
}

/// Items from last to first, for anything that Python's reversed() accepts.
PyItems reversed(PyWork& work, const PyValue& subject) {
  const bool view = subject.as<PyView>() != nullptr;
  if (!subject.is(PyKind::dict) && !view && !subject.is(PyKind::undefined) &&
      (!py_length(subject) || (subject.is(PyKind::object) && !subject.as<PyRange>())))
    py_fail("'" + py_type_name(subject) + "' object is not reversible");
  PyItems items = py_list(work, subject);
  std::reverse(items.begin(), items.end());
  return items;
}

PyValue last(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("last", args, {});
  if (subject.is_sequence() || subject.is_string()) {
    if (subject.is_string()) work.read(2 * subject.text().size());
    const auto item = py_at(subject, -1);
    return item ? *item : PyValue::undefined("No last item, sequence was empty.");
  }
  const PyItems items = reversed(work, subject);
  return items.empty() ? PyValue::undefined("No last item, sequence was empty.") : items.front();
}

PyValue list(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("list", args, {});
  return PyValue::list(py_list(work, subject));
}

PyNext yielding(PyItems items) {
  return [items = std::move(items), at = std::size_t{0}]() mutable -> std::optional<PyValue> {
    return at < items.size() ? std::optional(items[at++]) : std::nullopt;
  };
}

PyValue reverse(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("reverse", args, {});
  if (subject.is_string()) return py_slice(work, subject, {{}, {}, -1});
  PyItems items = py_list(work, subject);
  std::reverse(items.begin(), items.end());
  // Sequences without a reverse order are reversed as a list.
  if (subject.as<PyGenerator>()) return PyValue::list(std::move(items));
  return make_generator(yielding(std::move(items)), subject, "list_reverseiterator");
}

PyValue join(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("join", args, {"d", "attribute"});
  const PyGetter get = attribute_getter(work, a.value(1), Folding::none);
  const std::string separator = py_str(work, a.value(0, ""));
  const PyNext next = py_iterate(work, subject);
  std::string text;
  for (bool begun = false; auto item = next(); begun = true) {
    const std::string piece = py_str(work, get(*item));
    work.make((begun ? separator.size() : 0) + piece.size());
    PyWork::require_fits(text.size());
    text += (begun ? separator : "") + piece;
  }
  return text;
}

PyValue items(PyWork&, const PyValue& subject, const PyArgs& args) {
  const PyBound a("items", args, {});
  if (subject.is(PyKind::undefined)) return make_generator(yielding({}), subject);
  if (!subject.is(PyKind::dict)) py_fail("Can only get item pairs from a mapping.");
  return make_generator(
      [subject, at = std::size_t{0}]() mutable -> std::optional<PyValue> {
        const auto& entries = subject.dict().entries;
        if (at >= entries.size()) return std::nullopt;
        const auto& [key, value] = entries[at++];
        return PyValue::tuple({key, value});
      },
      subject);
}

enum class SortOrder : std::uint8_t { ascending, descending };

/// The values of the arguments `case_sensitive` and `reverse`; null if not given.
Folding folding(const PyValue* sensitive) {
  return sensitive && py_truth(*sensitive) ? Folding::none : Folding::ignore_case;
}
SortOrder order(const PyValue* reverse) {
  return reverse && py_truth(*reverse) ? SortOrder::descending : SortOrder::ascending;
}

/// Sorts by a key; stable.
PyItems sorted_by(PyWork& work, PyItems items, const PyGetter& key, SortOrder direction) {
  std::vector<PyValue> keys;
  for (const PyValue& item : items) keys.push_back(key(item));
  std::vector<std::size_t> order(items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    work.step();
    return direction == SortOrder::descending ? py_less(work, keys[b], keys[a]) : py_less(work, keys[a], keys[b]);
  });
  PyItems sorted;
  for (const std::size_t i : order) sorted.push_back(items[i]);
  return sorted;
}

PyValue dictsort(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = a[1] ? a.text(1) : "key";
  if (by != "key" && by != "value") py_fail("You can only sort by either \"key\" or \"value\"");
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  if (!subject.is(PyKind::dict)) py_fail("'" + py_type_name(subject) + "' object has no attribute 'items'");
  PyItems pairs;
  work.make(subject.dict().entries.size() * sizeof(PyValue));
  for (const auto& [key, value] : subject.dict().entries) pairs.push_back(PyValue::tuple({key, value}));
  const PyGetter get = attribute_getter(work, by == "key" ? 0 : 1, folding(a[0]));
  return PyValue::list(sorted_by(work, std::move(pairs), get, order(a[2])));
}

PyValue sort(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<PyGetter> getters;
  const PyValue attribute = a.value(2);
  if (attribute.is_string())
    for (const std::string& part : py_split(attribute.text(), ",", -1))
      getters.push_back(attribute_getter(work, part, folding(a[1])));
  else
    getters.push_back(attribute_getter(work, attribute, folding(a[1])));
  const PyGetter key = [&](const PyValue& value) {
    PyItems parts;
    for (const PyGetter& get : getters) parts.push_back(get(value));
    return PyValue::list(std::move(parts));
  };
  return PyValue::list(sorted_by(work, py_list(work, subject), key, order(a[0])));
}

PyValue unique(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("unique", args, {"case_sensitive", "attribute"});
  const PyGetter get = attribute_getter(work, a.value(1), folding(a[0]));
  PyNext next = py_iterate(work, subject);
  return make_generator(
      [&work, get, next, seen = PyDict()]() mutable -> std::optional<PyValue> {
        while (auto item = next()) {
          work.step();
          const PyValue key = get(*item);
          if (seen.find(work, key)) continue;
          seen.set(work, key, true);
          return item;
        }
        return std::nullopt;
      },
      subject);
}

enum class Wanted : std::uint8_t { smallest, largest };
template <Wanted wanted>
PyValue extreme(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("min or max", args, {"case_sensitive", "attribute"});
  const PyGetter get = attribute_getter(work, a.value(1), folding(a[0]));
  const PyNext next = py_iterate(work, subject);
  std::optional<PyValue> best = next();
  if (!best) return PyValue::undefined("No aggregated item, sequence was empty.");
  PyValue best_key = get(*best);
  while (auto item = next()) {
    work.step();
    PyValue key = get(*item);
    const bool better =
        wanted == Wanted::smallest ? py_less(work, key, best_key, "<") : py_less(work, best_key, key, ">");
    if (!better) continue;
    best = std::move(item);
    best_key = std::move(key);
  }
  return *best;
}

PyValue sum(PyWork& work, const PyValue& subject, const PyArgs& args) {
  const PyBound a("sum", args, {"attribute", "start"});
  PyValue total = a.value(1, 0);
  if (total.is_string()) py_fail("sum() can't sum strings [use ''.join(seq) instead]");
  const PyGetter get = attribute_getter(work, a.value(0), Folding::none);
  const PyNext next = py_iterate(work, subject);
  while (auto item = next()) {
    work.step();
    total = py_binary(work, PyOp::add, total, get(*item));
  }
  return total;
}

PyValue attr(PyWork&, const PyValue& subject, const PyArgs& args) {
  const PyBound a("attr", args, {"name"}, 1);
  if (subject.is(PyKind::undefined)) py_fail(subject.undefined_message());
  const std::string& name = a.text(0);
  // Unlike in subject.name, a key of a dict is not an attribute.
  if (subject.is(PyKind::dict) && !py_hidden_attribute(subject, name) && !py_method(subject, name))
    return PyValue::undefined("'dict object' has no attribute " + py_quote(name));
  return py_attribute(subject, name);
}

PyArgs behind(const PyArgs& args, std::size_t count) {
  return {.positional = {args.positional.begin() + static_cast<std::ptrdiff_t>(count), args.positional.end()},
          .keywords = args.keywords};
}

PyNext nothing() {
  return [] { return std::optional<PyValue>(); };
}

std::string name_of(const PyValue& value) {
  if (!value.is_string()) py_fail("the name of a filter or test must be a string, not " + py_type_name(value));
  return value.text();
}

/// What `map` does to an item: looks up an attribute, or applies a named filter.
PyGetter mapping(PyWork& work, const PyArgs& args) {
  if (args.positional.empty() && !args.keywords.empty()) {
    const PyBound a("map", args, {"attribute", "default"});
    if (!a[0]) py_fail("map requires a filter argument");
    return attribute_getter(work, *a[0], Folding::none, a[1]);
  }
  if (args.positional.empty()) py_fail("map requires a filter argument");
  return [&work, name = name_of(args.positional[0]), rest = behind(args, 1)](const PyValue& item) {
    return apply_filter(work, name, item, rest);
  };
}

PyValue map(PyWork& work, const PyValue& subject, const PyArgs& args) {
  if (!py_truth(subject)) return make_generator(nothing(), subject);
  PyNext next = py_iterate(work, subject);
  return make_generator(
      [&work, get = mapping(work, args), next]() -> std::optional<PyValue> {
        work.step();
        auto item = next();
        return item ? std::optional(get(*item)) : std::nullopt;
      },
      subject);
}

enum class Keep : std::uint8_t { passing, failing };
enum class Of : std::uint8_t { item, attribute };

/// Items that pass (or fail) a test, themselves or by an attribute; without a test, by their truth.
template <Keep keep, Of of>
PyValue choose(PyWork& work, const PyValue& subject, const PyArgs& args) {
  if (!py_truth(subject)) return make_generator(nothing(), subject);
  constexpr std::size_t skipped = of == Of::attribute ? 1 : 0;
  if (args.positional.size() < skipped) py_fail("Missing parameter for attribute name");
  PyGetter get = of == Of::attribute ? attribute_getter(work, args.positional[0], Folding::none)
                                     : PyGetter([](const PyValue& v) { return v; });
  std::function<bool(const PyValue&)> passes = py_truth;
  if (args.positional.size() > skipped)
    passes = [&work, name = name_of(args.positional[skipped]), rest = behind(args, skipped + 1)](const PyValue& v) {
      return apply_test(work, name, v, rest);
    };
  PyNext next = py_iterate(work, subject);
  return make_generator(
      [&work, get, passes, next]() -> std::optional<PyValue> {
        while (auto item = next()) {
          work.step();
          if (passes(get(*item)) == (keep == Keep::passing)) return item;
        }
        return std::nullopt;
      },
      subject);
}

constexpr auto kSequenceFilters = std::to_array<FilterEntry>({{"default", default_value},
                                                              {"d", default_value},
                                                              {"length", length},
                                                              {"count", length},
                                                              {"first", first},
                                                              {"last", last},
                                                              {"list", list},
                                                              {"reverse", reverse},
                                                              {"join", join},
                                                              {"items", items},
                                                              {"dictsort", dictsort},
                                                              {"sort", sort},
                                                              {"unique", unique},
                                                              {"min", extreme<Wanted::smallest>},
                                                              {"max", extreme<Wanted::largest>},
                                                              {"sum", sum},
                                                              {"attr", attr},
                                                              {"map", map},
                                                              {"select", choose<Keep::passing, Of::item>},
                                                              {"reject", choose<Keep::failing, Of::item>},
                                                              {"selectattr", choose<Keep::passing, Of::attribute>},
                                                              {"rejectattr", choose<Keep::failing, Of::attribute>}});

}  // namespace

std::span<const FilterEntry> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace qtrain
