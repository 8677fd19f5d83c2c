#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

/// The way of a document to a config.
namespace qtrain {

/// An error (ErrorKind::usage) for a document that is another kind of file than a config: what it is, and what to do.
void require_config(const Json& document, std::string_view name);

/// All settings of a document under flat keys: the nesting of manifests and of *_config objects is undone. The judge is
/// told of parts that cannot be honored, and of what only describes.
std::vector<std::pair<std::string, Setting>> flatten(const DialectTable& dialect, const ConfigDocument& document,
                                                     Judge& judge);

// What several settings come to together.
void settle_axolotl(Draft& draft);
void settle_llamafactory(Draft& draft);
/// Reads what `deepspeed`, `fsdp`, `fsdp_config` and `accelerate_config` name, and adds what it sets.
void add_launcher_settings(Draft& draft, const ConfigDocument& config);

/// What a document and the command line come to; problems are in the judge, and keys that have one their defaults.
/// Throws for a document that is no config.
ResolvedConfig resolve_config(ConfigDocument document, const Overrides& overrides);

}  // namespace qtrain
