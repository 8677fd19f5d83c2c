#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "text/template/interpreter.h"
#include "text/template/py_args.h"
#include "text/template/py_value.h"

namespace qtrain {

using FilterFunction = PyValue (*)(TemplateRun& run, const PyValue& subject, const PyArgs& args);
struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

// Jinja's filters by what they work on; a new one is a row in one of these tables.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> selection_filters();

/// The filter of this name, or null.
FilterFunction find_filter(std::string_view name);
bool is_test_name(std::string_view name);

using PyGetter = std::function<PyValue(const PyValue&)>;
enum class Folding : std::uint8_t { none, ignore_case };
/// value -> value.a.b for the attribute "a.b" (parts of digits are indices); the value itself for None.
/// `otherwise` replaces undefined values, if given and not None.
PyGetter attribute_getter(TemplateRun& run, const PyValue& attribute, Folding folding,
                          const PyValue* otherwise = nullptr);

enum class SortOrder : std::uint8_t { ascending, descending };
/// Sorts by a key, stably.
PyItems sorted_by(TemplateRun& run, PyItems items, const PyGetter& key, SortOrder order = SortOrder::ascending);

}  // namespace qtrain
