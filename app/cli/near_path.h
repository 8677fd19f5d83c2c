#pragma once
#include "core/error.h"

namespace qtrain {

/// The same error; if its place is a missing path and a similar one exists, the remedy begins with "did you mean". For
/// a missing checkpoint, the remedy lists the existing ones instead.
Error with_near_path(const Error& error);

}  // namespace qtrain
