#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "text/template/python/value.h"

namespace qtrain {

/// The variables of a block, inside those of the block around it.
class TemplateScope {
 public:
  explicit TemplateScope(std::shared_ptr<TemplateScope> parent) : parent_(std::move(parent)) {}
  /// Here or further out; null if nowhere.
  const PyValue* find(std::string_view name) const;
  void set(std::string_view name, PyValue value);
  void clear() { variables_.clear(); }

 private:
  std::map<std::string, PyValue, std::less<>> variables_;  // callers of a server may define any number
  std::shared_ptr<TemplateScope> parent_;
};

using ScopePtr = std::shared_ptr<TemplateScope>;

/// Another scope in place of one for as long as this lives.
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

}  // namespace qtrain
