#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/dialect.h"

namespace qtrain {

/// A class of the Python libraries that describes an adapter, with its defaults for what a config leaves open.
struct AdapterClass {
  std::string_view name;
  std::vector<DialectDefault> defaults;
};

/// The class whose names a config of the canonical dialect uses, or null where they say nothing. `names` are the keys
/// as they are written; that of the rank goes before the others.
const AdapterClass* adapter_class(std::span<const std::string> names);
/// That of a config which uses the names of none: TRL's ModelConfig.
const AdapterClass& usual_adapter_class();

}  // namespace qtrain
