#pragma once
#include <ctime>
#include <memory>

#include "text/template/jinja/globals.h"
#include "text/template/jinja/scope.h"
#include "text/template/python/work.h"

namespace qtrain {

/// State shared by the parts of an interpreter during a rendering.
struct TemplateState {
  explicit TemplateState(std::time_t now) : globals(now) {}

  PyWork work;
  ScopePtr scope = std::make_shared<TemplateScope>(nullptr);
  TemplateGlobals globals;
  int line = 1;  ///< line being executed, for messages
};

}  // namespace qtrain
