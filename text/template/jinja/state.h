#pragma once
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "text/template/jinja/builtins.h"
#include "text/template/python/value.h"
#include "text/template/python/work.h"

namespace qtrain {

/// The variables of a block, nested in the scope of the enclosing block.
class TemplateScope {
 public:
  explicit TemplateScope(std::shared_ptr<TemplateScope> parent) : parent_(std::move(parent)) {}
  /// Searches this scope and the enclosing ones; null if not found.
  const PyValue* find(std::string_view name) const;
  void set(std::string_view name, PyValue value);
  void clear() { variables_.clear(); }

 private:
  std::map<std::string, PyValue, std::less<>> variables_;  // callers of a server may define any number
  std::shared_ptr<TemplateScope> parent_;
};

using ScopePtr = std::shared_ptr<TemplateScope>;

/// Replaces a scope for the object's lifetime.
class ScopeGuard {
 public:
  ScopeGuard(ScopePtr& place, ScopePtr scope) : place_(place), outer_(std::exchange(place, std::move(scope))) {}
  ~ScopeGuard() { place_ = std::move(outer_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  ScopePtr& place_;
  ScopePtr outer_;
};

/// State shared by the parts of an interpreter during a rendering.
struct TemplateState {
  explicit TemplateState(std::time_t now, PyLimits limits = {}) : work(limits), globals(now) {}

  PyWork work;
  ScopePtr scope = std::make_shared<TemplateScope>(nullptr);
  TemplateGlobals globals;
  int line = 1;  ///< line being executed, for messages
};

}  // namespace qtrain
