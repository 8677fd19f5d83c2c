#pragma once
#include "text/template/python/arithmetic.h"
#include "text/template/python/value.h"

namespace qtrain {

// Python's operators on values of any type. Throw the errors that Python raises.
PyValue py_binary(PyWork& work, PyOp op, const PyValue& a, const PyValue& b);
PyValue py_unary(PyOp op, const PyValue& a);

}  // namespace qtrain
