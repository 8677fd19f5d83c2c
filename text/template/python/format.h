#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "text/template/python/value.h"

namespace qtrain {

/// Formatting options of "%-08.3f" and of format()'s "[[fill]align][sign][#][0][width][,][.precision][type]".
struct PySpec {
  char32_t fill = ' ';
  char align = '\0';  ///< '<', '>', '^', '=' (sign first, then fill), or 0
  char sign = '-';    ///< '-', '+' or ' '
  bool alternate = false;
  std::size_t width = 0;
  char grouping = '\0';  ///< ',' or '_'
  std::optional<int> precision = {};
  char type = '\0';
};

/// Parses a width or precision at `pos`; throws if it is absurdly large.
std::size_t parse_spec_number(std::string_view text, std::size_t& pos);
/// The value formatted by its type letter, with sign; the type is one of d b o x X c, or e E f F g G %.
std::string spec_integer(PyInt value, const PySpec& spec);
std::string spec_real(double value, const PySpec& spec);
/// Pads to the width.
std::string spec_pad(PyWork& work, std::string text, const PySpec& spec, char otherwise);

/// format(value, spec)
std::string py_format(PyWork& work, const PyValue& value, std::string_view spec);
/// text.format(*args, **kwargs)
PyValue py_format_text(PyWork& work, std::string_view text, const PyArgs& args);

}  // namespace qtrain
