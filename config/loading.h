#pragma once
#include "config/config.h"
#include "config/document.h"

namespace qtrain {

/// What a document and the command line come to; problems are in the judge, and keys that have one their defaults.
/// Throws for a document that is no config.
ResolvedConfig resolve_config(ConfigDocument document, const Overrides& overrides);

}  // namespace qtrain
