#pragma once
#include "text/template/jinja/ast.h"
#include "text/template/jinja/state.h"
#include "text/template/python/value.h"

namespace qtrain {

/// The value of an expression. Throws the errors that Jinja or Python would raise.
PyValue evaluate(TemplateState& state, const TemplateExpr& e);
/// The value of a call, with `caller` as an argument of that name unless null.
PyValue evaluate_call(TemplateState& state, const TemplateExpr& e, const PyValue* caller = nullptr);
/// The value of a filter chain, which starts with the text of a block unless null.
PyValue evaluate_filter(TemplateState& state, const TemplateExpr& e, const PyValue* block_text = nullptr);

}  // namespace qtrain
