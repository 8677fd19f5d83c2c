#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace qtrain {

/// The number of the first element of a host tensor that is NaN or infinite; none where all are finite, as integers
/// are.
std::optional<std::int64_t> first_nonfinite(ConstTensor tensor);

/// "element 12 is nan"
std::string describe_element(ConstTensor tensor, std::int64_t element);

}  // namespace qtrain
