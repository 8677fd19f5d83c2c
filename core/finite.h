#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace qtrain {

/// The index of the first element of a host tensor that is NaN or infinite; none if all are finite, as integers always
/// are.
std::optional<std::int64_t> first_nonfinite(ConstTensor tensor);

/// "element 12 is nan"
std::string describe_element(ConstTensor tensor, std::int64_t element);

}  // namespace qtrain
