#include "text/template/jinja/selection_filters.h"

#include <array>

#include "text/template/jinja/attribute_getter.h"
#include "text/template/jinja/filters.h"
#include "text/template/jinja/tests.h"
#include "text/template/python/access.h"
#include "text/template/python/functions.h"

namespace qtrain {
namespace {

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

constexpr auto kSelectionFilters = std::to_array<FilterEntry>({{"map", map},
                                                               {"select", choose<Keep::passing, Of::item>},
                                                               {"reject", choose<Keep::failing, Of::item>},
                                                               {"selectattr", choose<Keep::passing, Of::attribute>},
                                                               {"rejectattr", choose<Keep::failing, Of::attribute>}});

}  // namespace

std::span<const FilterEntry> selection_filters() {
  return kSelectionFilters;
}

}  // namespace qtrain
