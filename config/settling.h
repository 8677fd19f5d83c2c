#pragma once
#include "config/dialect_table.h"
#include "config/document.h"
#include "config/setting.h"

namespace qtrain {

/// Resolves the pending settings (first character kPending) once all are known: those of the dialect, then those of the
/// launcher configurations that the document names. None is left afterwards.
void settle_pending(Draft& draft, const DialectTable& dialect, const ConfigDocument& document);

}  // namespace qtrain
