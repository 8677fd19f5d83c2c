#pragma once
#include <optional>
#include <string_view>

#include "text/template/ast.h"
#include "text/template/py_value.h"

namespace qtrain {

// Python's operators on values. Errors are those that Python raises.

PyValue py_binary(PyWork& work, PyOp op, const PyValue& a, const PyValue& b);
PyValue py_unary(PyOp op, const PyValue& a);
bool py_compare(PyWork& work, PyCompare op, const PyValue& a, const PyValue& b);
bool py_contains(PyWork& work, const PyValue& item, const PyValue& container);
/// The steps of value[start:stop:step]; null or None bounds are open.
PyValue py_slice(PyWork& work, const PyValue& value, const PyItems& bounds);

/// Yields the items of an iterable: characters, items, keys.
PyNext py_iterate(PyWork& work, const PyValue& value);
bool py_is_iterable(const PyValue& value);
PyItems py_list(PyWork& work, const PyValue& value);
/// len(value); none if it has no length.
std::optional<std::size_t> py_length(const PyValue& value);
/// Item of a str, list, tuple or range; none if out of range or not indexed by integers. Negative counts from the end.
std::optional<PyValue> py_at(const PyValue& value, PyInt index);

PyValue py_int_binary(PyOp op, PyInt a, PyInt b);
PyValue py_real_binary(PyOp op, double a, double b);
/// The value of an int, bool or float.
std::optional<double> py_as_real(const PyValue& value);

/// text % values, for a tuple, a dict or one value.
std::string py_percent(PyWork& work, const std::string& text, const PyValue& values);
/// format(value, spec)
std::string py_format(PyWork& work, const PyValue& value, std::string_view spec);

}  // namespace qtrain
