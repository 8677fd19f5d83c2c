#pragma once
#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// What settings that wait for others come to, now that all are known: those of the dialect, then those of the
/// configurations of launchers that the document names. None is left that begins with kPending.
void settle_pending(Draft& draft, const DialectTable& dialect, const ConfigDocument& document);

}  // namespace qtrain
