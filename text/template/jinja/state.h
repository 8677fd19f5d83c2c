#pragma once
#include <ctime>
#include <memory>

#include "text/template/jinja/globals.h"
#include "text/template/jinja/scope.h"
#include "text/template/python/work.h"

namespace qtrain {

/// What the parts of an interpreter share while a template is rendered.
struct TemplateState {
  explicit TemplateState(std::time_t now) : globals(now) {}

  PyWork work;
  ScopePtr scope = std::make_shared<TemplateScope>(nullptr);
  TemplateGlobals globals;
  int line = 1;  ///< of what is being executed, for messages
};

}  // namespace qtrain
