#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/python/numbers.h"
#include "text/template/python/operators.h"
#include "text/template/python/value.h"

namespace qtrain {

struct TemplateExpr;
struct TemplateStmt;
using ExprPtr = std::unique_ptr<TemplateExpr>;
using StmtPtr = std::unique_ptr<TemplateStmt>;
using TemplateBody = std::vector<StmtPtr>;

struct CallExprs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star, star_star;  ///< *args, **kwargs
};

enum class ExprKind : std::uint8_t {
  constant,     ///< value
  name,         ///< name
  ns_name,      ///< name.attribute as the target of `set`: name, attribute
  list,         ///< children
  tuple,        ///< children
  dict,         ///< children: key, value, key, value, ...
  logical_not,  ///< children[0]
  logical_and,  ///< children[0..1]
  logical_or,   ///< children[0..1]
  unary,        ///< op, children[0]
  binary,       ///< op, children[0..1]
  concat,       ///< children
  compare,      ///< children, one more than `compares`
  conditional,  ///< children: test, then, else (may be missing)
  attribute,    ///< children[0], attribute
  item,         ///< children[0], children[1]
  slice,        ///< children[0], then start, stop, step (may be null)
  call,         ///< children[0], call
  filter,       ///< children[0] (null in {% filter %} and {% set %} blocks), name, call
  test,         ///< children[0], name, call
};

struct TemplateExpr {
  ExprKind kind = ExprKind::constant;
  int line = 0;
  int height = 1;  ///< number of nodes on the longest path down from this one
  std::string name, attribute;
  PyValue value;
  PyOp op = PyOp::add;
  std::vector<PyCompare> compares;
  std::vector<ExprPtr> children;
  CallExprs call;

  void add(ExprPtr child) {
    rise_above(child);
    children.push_back(std::move(child));
  }
  void set_call(CallExprs arguments) {
    call = std::move(arguments);
    for (const ExprPtr& e : call.positional) rise_above(e);
    for (const auto& [key, e] : call.keywords) rise_above(e);
    rise_above(call.star);
    rise_above(call.star_star);
  }

 private:
  void rise_above(const ExprPtr& child) {
    if (child) height = std::max(height, child->height + 1);
  }
};

/// Creates a node with children.
template <class... Children>
ExprPtr make_expr(ExprKind kind, int line, Children... children) {
  auto e = std::make_unique<TemplateExpr>();
  e->kind = kind;
  e->line = line;
  (e->add(std::move(children)), ...);
  return e;
}

/// Special variables of macros; each macro has those that its body reads.
struct SpecialNames {
  bool caller = false, varargs = false, kwargs = false;

  void add(const SpecialNames& others) {
    caller |= others.caller;
    varargs |= others.varargs;
    kwargs |= others.kwargs;
  }
};

struct MacroParts {
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  ///< for the last parameters
  SpecialNames uses;
};

enum class StmtKind : std::uint8_t {
  text,          ///< text
  output,        ///< value
  set,           ///< target, value
  set_block,     ///< target, value (a chain of filters or null), body
  for_loop,      ///< target, value, test, recursive, body, otherwise
  branch,        ///< branches: (test, body), the last test null for `else`
  macro,         ///< name, macro, body
  call_block,    ///< macro (its signature), value (the call), body
  filter_block,  ///< value (a chain of filters), body
  with,          ///< bindings, body
  block,         ///< name, body
  generation,    ///< body
  loop_break,
  loop_continue,
};

struct TemplateStmt {
  StmtKind kind = StmtKind::text;
  int line = 0;
  std::string text, name;
  ExprPtr target, value, test;
  bool recursive = false;
  MacroParts macro;
  TemplateBody body, otherwise;
  std::vector<std::pair<ExprPtr, TemplateBody>> branches;
  std::vector<std::pair<ExprPtr, ExprPtr>> bindings;
};

struct ParsedTemplate {
  TemplateBody body;
  bool has_generation = false;
};

}  // namespace qtrain
