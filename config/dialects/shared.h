#pragma once
#include "config/config.h"

namespace qtrain {

/// Whether there are evaluation rows.
bool evaluates(const ResolvedConfig& config);
/// For dialects that learn answers only: a response_template tells them apart; and where the model's folder has no chat
/// template, rows have no roles, and completion_only_loss does.
void tell_answers_apart(ResolvedConfig& config);

}  // namespace qtrain
